"""Serves a folder on this machine alone: python3 web/serve.py build/release/web/site"""

import functools
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, with the types that browsers ask of modules. WebGPU needs no more than 127.0.0.1."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map,
                      ".mjs": "text/javascript", ".wgsl": "text/plain"}

    def log_message(self, *_):
        pass


def make_server(folder, handler=Handler, port=0):
    return http.server.ThreadingHTTPServer(
        ("127.0.0.1", port), functools.partial(handler, directory=folder))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: serve.py FOLDER")
    with make_server(sys.argv[1], port=8080) as server:
        print(f"http://127.0.0.1:{server.server_port}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()

"""Opens checks.html of a built site in headless Chromium and judges what the page reports.

python3 web/browser_test.py build/release/web/site [--all] [--chromium PATH] [--seconds N]
"""

import argparse
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import serve

# The adapter in software that Chromium brings.
CHROMIUM_FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu-sandbox", "--no-first-run",
                  "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
                  "--enable-features=Vulkan"]
# Errors of the layers and cases are in units of their bounds.
LARGEST_SUM_ERROR = 1e-4
LARGEST_NAIVE_DIFFERENCE = 1e-5
# Of a good call, of each of BAD_ARGUMENTS, of a sink that adds nothing, of a call without
# arguments, and of a bad option of open().
REFUSALS = ["none", "headDim", "mask", "windowleft", "windowRight", "causal", "windowLeft",
            "windowRight", "softcap", "softcap", "softcap", "scale", "scale", *5 * ["sinks"],
            *7 * ["alibiSlopes"], "numQHeads", "numQHeads", "numQHeads", "numKvHeads", "dtype",
            "q", "k", "v", "q", "q", "none", "args", "shader"]


def faults_of(report):
    """What is wrong with a report, a line each."""
    if "error" in report:
        return [f"the page failed: {report['error']}"]
    faults = []
    if "swiftshader" not in report["adapter"].lower():
        faults.append(f"the adapter is {report['adapter']!r}")
    for layer in report["layers"]:
        if not layer["excess"] <= 1.0 or not layer["sumError"] <= LARGEST_SUM_ERROR:
            faults.append(f"layer {layer['layer']}: {layer}")
    if len(report["layers"]) != 3 or len(report["cases"]) != 4:
        faults.append("layers or cases are missing")
    faults += [f"case {at}: error / bound {excess}" for at, excess in enumerate(report["cases"])
               if not excess <= 1.0]
    refusals = [text.split(":")[0] for text in report["refusals"]]
    if refusals != REFUSALS:
        faults.append(f"refusals: {report['refusals']}")
    demo = report["demo"]
    if not demo["text"].startswith("layer 14: largest error") or demo["numDark"] < 304:
        faults.append(f"the demo page: {demo}")
    if not report["timing"]["difference"] <= LARGEST_NAIVE_DIFFERENCE:
        faults.append(f"beside the naive shader: {report['timing']}")
    return faults + [f"does not compile: {text}" for text in report["shaders"]["failures"]]


def handler_for(reports):
    begin = time.monotonic()

    class Handler(serve.Handler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()
            if self.path == "/report":
                reports.put(json.loads(body))
            else:
                print(f"{time.monotonic() - begin:6.1f} s  {json.loads(body)}", flush=True)

    return Handler


def open_page(chromium, url, reports, seconds):
    """The page's report. Ends the browser's own process group, whatever happens."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "HOME": folder}
        with open(os.path.join(folder, "log"), "w+b") as log:
            browser = subprocess.Popen(
                [chromium, *CHROMIUM_FLAGS, f"--user-data-dir={folder}/profile", url],
                stdout=log, stderr=log, env=environment, start_new_session=True)
            try:
                return reports.get(timeout=seconds)
            except queue.Empty:
                log.seek(0)
                tail = log.read().decode(errors="replace")[-3000:]
                return {"error": f"no report within {seconds} s; the browser said:\n{tail}"}
            finally:
                os.killpg(browser.pid, signal.SIGKILL)
                browser.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--all", action="store_true", help="the driver compiles every plain shader")
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--seconds", type=int, default=3600, help="until it gives up (3600)")
    options = parser.parse_args()
    if options.chromium is None:
        sys.exit("browser_test: chromium is not installed")
    labels = [shader["label"] + "." for shader in
              json.loads((options.site / "shaders/index.json").read_text())]
    wanted = {"numChecked": len(labels),
              "numCompiled": sum(".wide" not in label and (options.all or ".c1." in label)
                                 for label in labels)}
    reports = queue.Queue()
    with serve.make_server(options.site, handler_for(reports)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/checks.html{'?all' if options.all else ''}"
        report = open_page(options.chromium, url, reports, options.seconds)
        server.shutdown()
    faults = faults_of(report)
    for name, count in wanted.items():
        if not faults and report["shaders"][name] != count:
            faults.append(f"shaders: {name} is {report['shaders'][name]}, not {count}")
    print(json.dumps(report, indent=1))
    for fault in faults:
        print(f"browser_test: {fault}", file=sys.stderr)
    print(f"browser_test: {'FAILED' if faults else 'ok'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Reads .safetensors files with the standard library alone."""

import json
import struct

# struct codes; bf16 has none and is not needed here.
CODES = {"F16": "e", "F32": "f", "I32": "i"}


class SafetensorsFile:
    """All tensors of one file, as flat lists of numbers in row-major order."""

    def __init__(self, path):
        with open(path, "rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            self._header = json.loads(file.read(header_bytes))
            self._data = file.read()

    def metadata(self):
        return self._header["__metadata__"]

    def shape(self, name):
        return self._header[name]["shape"]

    def values(self, name):
        entry = self._header[name]
        first, end = entry["data_offsets"]
        code = CODES[entry["dtype"]]
        count = (end - first) // struct.calcsize(code)
        return struct.unpack(f"<{count}{code}", self._data[first:end])

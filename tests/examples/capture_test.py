"""Runs the heed tool on the committed capture and compares with what its model computed.

Usage: capture_test.py HEED CAPTURE
"""

import math
import pathlib
import subprocess
import sys
import tempfile

from safetensors_file import SafetensorsFile

LAYERS = (0, 14, 29)
UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11}
SMALLEST_STEP = {"f32": 2.0**-149, "f16": 2.0**-24}


class Layer:
    """Reference output of one layer and how far a right result may be from it."""

    def __init__(self, capture, index):
        self._capture = capture
        self._prefix = f"layer{index}."
        _, self.num_rows, self.num_heads, self.head_dim = capture.shape(self._prefix + "q")
        self.o_rows = capture.values(self._prefix + "o_rows")
        self.lse = capture.values(self._prefix + "lse")
        self._largest_v = max(map(abs, capture.values(self._prefix + "v")))
        self._score_error = self._bound_score_error()
        # Relative: both sums over the keys, and about 16 roundings of exp and of the rescaling.
        self._sum_error = (2 * self.num_rows + 16) * UNIT_ROUNDOFF["f32"]

    def _largest_norm(self, name):
        values = self._capture.values(self._prefix + name)
        starts = range(0, len(values), self.head_dim)
        return max(math.dist(values[i : i + self.head_dim], [0] * self.head_dim) for i in starts)

    def _bound_score_error(self):
        """Absolute error of scale * q.k summed in fp32: D + 1 roundings, by Cauchy-Schwarz."""
        product = self._largest_norm("q") * self._largest_norm("k") / math.sqrt(self.head_dim)
        return (self.head_dim + 1) * UNIT_ROUNDOFF["f32"] * product

    def o_tolerance(self, dtype, expected):
        """A weight is off by its score's and the sum's error, and may be rounded to dtype."""
        weight_error = math.expm1(2 * self._score_error) + self._sum_error
        if dtype != "f32":
            weight_error += UNIT_ROUNDOFF[dtype]
        rounding = 2 * UNIT_ROUNDOFF[dtype] * abs(expected) + SMALLEST_STEP[dtype]
        return weight_error * self._largest_v + rounding

    def frobenius_tolerance(self, dtype):
        """Over many elements independent roundings average out: D roundings per score, and with a
        16-bit dtype those of the weights and of o."""
        own = 2 * UNIT_ROUNDOFF[dtype] if dtype != "f32" else 0
        return self.head_dim * UNIT_ROUNDOFF["f32"] + own

    def lse_tolerance(self, expected):
        return self._score_error + self._sum_error + 2 * UNIT_ROUNDOFF["f32"] * abs(expected)


def relative_frobenius(actual, expected):
    """Norm of the difference over the norm of expected; infinite for another count."""
    if len(actual) != len(expected):
        return math.inf
    return math.dist(actual, expected) / math.hypot(*expected)


def worst_ratio(actual, expected, tolerance):
    """Largest |actual - expected| / tolerance(expected); infinite for NaN or another count."""
    if len(actual) != len(expected):
        return math.inf
    ratios = [abs(a - e) / tolerance(e) for a, e in zip(actual, expected)]
    return math.inf if any(map(math.isnan, ratios)) else max(ratios)


def stored_rows(values, layer, row_step):
    """The rows of o [1,S,H,D] that the capture stores: row_step - 1, 2 * row_step - 1, ..."""
    row_elems = layer.num_heads * layer.head_dim
    rows = range(row_step - 1, layer.num_rows, row_step)
    return [value for row in rows for value in values[row * row_elems : (row + 1) * row_elems]]


class Tool:
    """The heed tool applied to one layer of the capture in one dtype."""

    def __init__(self, heed, capture_path, index, dtype):
        self._heed = heed
        self._input = ["--input", capture_path, "--prefix", f"layer{index}.", "--dtype", dtype]

    def run(self, *options):
        """Output tensors of `heed run`."""
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "output.safetensors"
            command = [self._heed, "run", *self._input, *options, "--output", output]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return SafetensorsFile(output)

    def check(self, *options):
        """Whether `heed check` passes."""
        command = [self._heed, "check", *self._input, *options]
        return subprocess.run(command, check=False).returncode == 0


def error_ratios(layer, dtype, result, row_step):
    """Errors over their tolerances: of the worst element of o, of o as a whole, and of lse."""
    o = stored_rows(result.values("o"), layer, row_step)
    return (
        worst_ratio(o, layer.o_rows, lambda e: layer.o_tolerance(dtype, e)),
        relative_frobenius(o, layer.o_rows) / layer.frobenius_tolerance(dtype),
        worst_ratio(result.values("lse"), layer.lse, layer.lse_tolerance),
    )


def failures_of(tool, layer, dtype, row_step):
    """What is wrong with one layer in one dtype, one text each."""
    ratios = error_ratios(layer, dtype, tool.run("--causal"), row_step)
    print("of the tolerance: worst o {:.2g}, all of o {:.2g}, lse {:.2g}".format(*ratios))
    if not all(ratio <= 1 for ratio in ratios):
        yield "differs from the model's attention"
    if any(ratio <= 1 for ratio in error_ratios(layer, dtype, tool.run(), row_step)):
        yield "passes without --causal too: the comparison is too lenient"
    if not tool.check("--causal"):
        yield "heed check fails"


def main():
    heed, capture_path = sys.argv[1:]
    capture = SafetensorsFile(capture_path)
    row_step = int(capture.metadata()["o_row_step"])
    num_failures = 0
    for index in LAYERS:
        layer = Layer(capture, index)
        for dtype in UNIT_ROUNDOFF:
            print(f"layer {index}, {dtype}: ", end="", flush=True)
            tool = Tool(heed, capture_path, index, dtype)
            for failure in failures_of(tool, layer, dtype, row_step):
                print(f"FAILED: layer {index}, {dtype}: {failure}")
                num_failures += 1
    return 1 if num_failures else 0


if __name__ == "__main__":
    sys.exit(main())

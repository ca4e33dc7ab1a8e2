"""Attention of onnxruntime's WebGPU provider beside heed's forward shader, both in fp32.

bench/compare_webgpu.py [--speed build/release/tests/webgpu/webgpu_speed] [--len 4096]
                        [--rounds 5] [--install] [--json FILE]

onnxruntime runs com.microsoft.MultiHeadAttention on random numbers, batch 1, 16 heads. A session's
time has copies in it, so what is reported is a node's share: graphs of 1 and of 1 + N nodes, each
of which is the next one's query, run by turns, and the difference is divided by N. One node's
result is compared with float64. webgpu_speed times heed's shader by the device's clock, in the same
rounds. --install puts onnxruntime-webgpu and numpy into build/onnxruntime-webgpu and runs there.

Exit status 3: the provider cannot run here or its result is wrong, and the last line says why.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

PACKAGE = "onnxruntime-webgpu==1.27.0"
VENV = pathlib.Path(__file__).resolve().parent.parent / "build" / "onnxruntime-webgpu"
PROVIDER = "WebGpuExecutionProvider"
HEADS = 16
CHAINED = 24
LARGEST_ERROR = 1e-4
CANNOT_RUN = 3
FLOAT, INT_ATTRIBUTE = 1, 2  # of onnx.TensorProto.DataType and onnx.AttributeProto.AttributeType


def varint(value):
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def field(number, value):
    """A field of a protobuf message: an integer, or text or a message as bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def value_info(name, shape):
    dims = b"".join(field(1, field(1, dim)) for dim in shape)
    tensor = field(1, FLOAT) + field(2, dims)
    return field(1, name) + field(2, field(1, tensor))


def model(num_nodes, shape):
    """ONNX bytes of attention of q, k, v, whose result is the next node's query."""
    heads = field(1, "num_heads") + field(3, HEADS) + field(20, INT_ATTRIBUTE)
    graph, query = b"", "q"
    for at in range(num_nodes):
        result = "o" if at == num_nodes - 1 else f"o{at}"
        names = b"".join(field(1, name) for name in (query, "k", "v"))
        graph += field(1, names + field(2, result) + field(4, "MultiHeadAttention") +
                       field(5, heads) + field(7, "com.microsoft"))
        query = result
    graph += field(2, "attention")
    graph += b"".join(field(11, value_info(name, shape)) for name in "qkv")
    graph += field(12, value_info("o", shape))
    opsets = field(8, field(1, "") + field(2, 17)) + field(8, field(1, "com.microsoft") +
                                                           field(2, 1))
    return field(1, 8) + field(7, graph) + opsets


def exact_rows(q, k, v, head, rows):
    """o of some rows of a head in float64; arrays are [L, heads, D]."""
    scores = q[rows, head].astype(float) @ k[:, head].astype(float).T / q.shape[2] ** 0.5
    weights = [[2.718281828459045 ** (s - max(row)) for s in row] for row in scores.tolist()]
    import numpy
    weights = numpy.array(weights)
    return weights @ v[:, head].astype(float) / weights.sum(axis=1, keepdims=True)


class Rival:
    def __init__(self, length, head_dim):
        import numpy
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # A node that the provider cannot take is an error, not a run on the CPU.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        shape = (1, length, HEADS * head_dim)
        self.sessions = {
            count: onnxruntime.InferenceSession(model(count, shape), options,
                                                providers=[PROVIDER], enable_fallback=0)
            for count in (1, 1 + CHAINED)}
        generator = numpy.random.default_rng(1)
        self.inputs = {name: generator.standard_normal(shape, dtype=numpy.float32)
                       for name in "qkv"}
        self.split = (length, HEADS, head_dim)

    def seconds(self, num_nodes):
        begin = time.perf_counter()
        self.sessions[num_nodes].run(["o"], self.inputs)
        return time.perf_counter() - begin

    def error(self):
        """Largest difference of some rows from float64."""
        o = self.sessions[1].run(["o"], self.inputs)[0].reshape(self.split)
        q, k, v = (self.inputs[name].reshape(self.split) for name in "qkv")
        rows = [0, self.split[0] // 3, self.split[0] - 1]
        return max(float(abs(o[rows, head] - exact_rows(q, k, v, head, rows)).max())
                   for head in (0, HEADS - 1))


def heed_rows(speed, length):
    """{head dim: row} of one round of webgpu_speed."""
    done = subprocess.run([speed, str(length), "1"], check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    return report["adapter"], {row["D"]: row for row in report["results"]}


def compare(options):
    rivals = {dim: Rival(options.len, dim) for dim in (64, 128)}
    report = {"package": PACKAGE, "op": "com.microsoft.MultiHeadAttention, fp32, no mask",
              "len": options.len, "heads": HEADS, "rounds": options.rounds, "results": []}
    errors = {dim: rival.error() for dim, rival in rivals.items()}
    if not max(errors.values()) < LARGEST_ERROR:
        raise ValueError(f"the provider's results are wrong on this adapter, by {errors}")
    for rival in rivals.values():
        rival.seconds(1 + CHAINED)
    rival_seconds = {dim: [] for dim in rivals}
    heed_seconds = {dim: [] for dim in rivals}
    for _ in range(options.rounds):
        for dim, rival in rivals.items():
            one, many = rival.seconds(1), rival.seconds(1 + CHAINED)
            rival_seconds[dim].append((many - one) / CHAINED)
        if options.speed:
            report["heed_adapter"], rows = heed_rows(options.speed, options.len)
            for dim, row in rows.items():
                heed_seconds[dim].append(row["forward_ms"] * 1e-3)
    for dim in rivals:
        flops = 4.0 * HEADS * options.len ** 2 * dim
        seconds = statistics.median(rival_seconds[dim])
        row = {"D": dim, "onnxruntime_ms": round(seconds * 1e3, 4),
               "onnxruntime_rounds_ms": [round(s * 1e3, 4) for s in rival_seconds[dim]],
               "onnxruntime_tflops": round(flops / seconds * 1e-12, 3),
               "onnxruntime_error": errors[dim]}
        if heed_seconds[dim]:
            heed = statistics.median(heed_seconds[dim])
            row |= {"heed_ms": round(heed * 1e3, 4),
                    "heed_tflops": round(flops / heed * 1e-12, 3),
                    "times_as_fast": round(seconds / heed, 3)}
        report["results"].append(row)
    return report


def install():
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([VENV / "bin" / "python", "-m", "pip", "install", "--quiet",
                    "--disable-pip-version-check", "--only-binary", ":all:", PACKAGE, "numpy"],
                   check=True)
    arguments = [argument for argument in sys.argv if argument != "--install"]
    os.execv(VENV / "bin" / "python", [VENV / "bin" / "python", *arguments])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", help="webgpu_speed of a build; without it heed is not timed")
    parser.add_argument("--len", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.install:
        install()
    try:
        import onnxruntime
    except ImportError as error:
        print(f"compare_webgpu: {error} (--install brings it)")
        return CANNOT_RUN
    if PROVIDER not in onnxruntime.get_available_providers():
        print(f"compare_webgpu: this onnxruntime has {onnxruntime.get_available_providers()}")
        return CANNOT_RUN
    try:
        report = compare(options)
    except Exception as error:  # pylint: disable=broad-except  # of whatever type the provider has
        if isinstance(error, subprocess.CalledProcessError):
            raise
        print(f"compare_webgpu: {type(error).__name__}: {error}")
        return CANNOT_RUN
    text = json.dumps(report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

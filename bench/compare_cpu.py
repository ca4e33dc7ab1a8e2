#!/usr/bin/env python3
"""Attention on a CPU beside PyTorch, ONNX Runtime and attention written in NumPy.

Every side gets the same numbers in the same memory ([B, H, S, D]; ONNX Runtime, which takes only
[B, S, H D], a copy in that order) and the same number of threads. Outputs are compared before
anything is timed. Rounds are interleaved, heed, peer, peer, heed, ..., and a ratio is the median
over rounds of peer time over heed time. Peers that are not installed or lack the case are left out:
ONNX Runtime runs fp32 forward passes, by MultiHeadAttention with as many KV heads as query heads
and by GroupQueryAttention, which is always causal, with fewer; NumPy those with as many KV heads,
up to --numpy-limit keys. Of a backward pass only the pass itself is timed.

Op decode is one new token against a full cache of each of --decode-lengths keys, 32 query heads on
8 KV heads, D = 128, beside PyTorch in the faster of two memory layouts (compare_cpu_decode.py).
Beside the JSON comes a plot of the ratios, where matplotlib is installed.

usage: compare_cpu.py [--threads N] [--rounds N] [--lengths 128,...] [--json FILE] ...
"""

import argparse
import ctypes as c
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH, HEADS = 1, 8
DECODE_GROUP = 4
# Largest difference to PyTorch, of the largest element.
TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2}


def commit():
    try:
        return subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                              capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", default="128,512,1024,4096,16384")
    parser.add_argument("--decode-lengths", default="1024,4096,16384,65536,131072")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--kv-heads", default="8,2")
    parser.add_argument("--ops", default="forward,backward,decode")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--slice-seconds", type=float, default=0.02)
    parser.add_argument("--numpy-limit", type=int, default=4096)
    parser.add_argument("--commit", default=commit(), help="of heed, where git does not know it")
    parser.add_argument("--json")
    return parser.parse_args()


OPTIONS = parse_options()
# Read by the BLAS of NumPy when it is loaded.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(OPTIONS.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "bench"))
import compare_cpu_decode  # noqa: E402
from compare_cpu_decode import Tensor, timed, timed_alone  # noqa: E402
from heed import abi, library  # noqa: E402

try:
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None


class Heed:
    """heed_forward, and heed_backward of it, on tensors [B, H, S, D]."""

    def __init__(self, q, k, v, causal):
        self.keep = []
        self.o = torch.empty_like(q)
        self.lse = torch.empty(q.shape[:3], dtype=torch.float32)
        self.score = abi.ScoreArgs(causal=int(causal))
        self.exec = abi.ExecArgs(num_threads=OPTIONS.threads)
        self.args = abi.ForwardArgs(q=self.rows(q), k=self.rows(k), v=self.rows(v),
                                    o=self.rows(self.o), lse=self.bind(self.lse),
                                    score=c.pointer(self.score), exec=c.pointer(self.exec))
        self.kernel = self.use_workspace(abi.OP_FORWARD, self.args, self.exec)

    def bind(self, tensor):
        self.keep.append(Tensor(tensor))
        return self.keep[-1].pointer()

    def rows(self, tensor):
        return self.bind(tensor.transpose(1, 2))

    def use_workspace(self, op, args, exec_args):
        plan = abi.PlanInfo()
        library.check(library.load().heed_plan(op, c.byref(args), c.byref(plan)))
        workspace = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8)
        self.keep.append(workspace)
        exec_args.workspace = (workspace.data_ptr() + 63) // 64 * 64
        exec_args.workspace_bytes = plan.workspace_bytes
        return plan.kernel_id.decode()

    def forward(self):
        library.check(library.load().heed_forward(c.byref(self.args)))
        return [self.o]

    def prepare_backward(self, q, k, v, d_o):
        self.forward()
        self.gradients = [torch.empty_like(t) for t in (q, k, v)]
        dq, dk, dv = (self.rows(t) for t in self.gradients)
        self.backward_exec = abi.ExecArgs(num_threads=OPTIONS.threads)
        self.backward_args = abi.BackwardArgs(forward=c.pointer(self.args), d_o=self.rows(d_o),
                                              dq=dq, dk=dk, dv=dv,
                                              exec=c.pointer(self.backward_exec))
        self.kernel = self.use_workspace(abi.OP_BACKWARD, self.backward_args, self.backward_exec)

    def backward(self):
        library.check(library.load().heed_backward(c.byref(self.backward_args)))
        return self.gradients


def sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def torch_backward(q, k, v, d_o, causal):
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    o = sdpa(*leaves, causal)
    return lambda: list(torch.autograd.grad(o, leaves, d_o, retain_graph=True))


def onnx_session(node, inputs, output):
    """An ONNX Runtime session of one node; inputs and output are {name: (type, shape)}."""
    value = lambda name, of: onnx.helper.make_tensor_value_info(name, *of)
    graph = onnx.helper.make_graph([node], "attention",
                                   [value(name, of) for name, of in inputs.items()],
                                   [value(name, of) for name, of in output.items()])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)])
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = OPTIONS.threads
    return onnxruntime.InferenceSession(model.SerializeToString(), session_options,
                                        providers=["CPUExecutionProvider"])


def onnx_forward(q, k, v, causal):
    """MultiHeadAttention or GroupQueryAttention of ONNX Runtime; gives [B, H, S, D]."""
    batch, heads, length, head_dim = q.shape
    floats, ints = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    inputs = {name: (floats, [batch, length, t.shape[1] * head_dim])
              for name, t in zip("qkv", (q, k, v))}
    feeds = {name: t.transpose(1, 2).reshape(inputs[name][1]).contiguous().numpy()
             for name, t in zip("qkv", (q, k, v))}
    outputs = {"o": (floats, inputs["q"][1])}
    if k.shape[1] == heads:
        node = onnx.helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"],
                                     domain="com.microsoft", num_heads=heads,
                                     unidirectional=int(causal))
    else:
        node = onnx.helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "", "", "last", "length"],
            ["o", "present_k", "present_v"], domain="com.microsoft", num_heads=heads,
            kv_num_heads=k.shape[1])
        inputs |= {"last": (ints, [batch]), "length": (ints, [1])}
        feeds |= {"last": np.full(batch, length - 1, np.int32),
                  "length": np.array([length], np.int32)}
        outputs |= {name: (floats, list(k.shape)) for name in ("present_k", "present_v")}
    session = onnx_session(node, inputs, outputs)
    run = lambda: session.run(["o"], feeds)[0]
    as_heads = lambda o: torch.from_numpy(o).reshape(batch, length, heads, head_dim).transpose(1, 2)
    return lambda: [as_heads(run())]


def has_onnx(case):
    return (onnxruntime is not None and case["dtype"] == "float32" and
            (case["kv_heads"] == HEADS or case["causal"]))


def numpy_forward(q, k, v, causal):
    q, k, v = (t.numpy() for t in (q, k, v))
    scale = np.float32(q.shape[-1] ** -0.5)
    hidden = np.triu(np.ones((q.shape[2], k.shape[2]), dtype=bool), 1) if causal else None

    def run():
        scores = np.matmul(q, np.swapaxes(k, -1, -2))
        scores *= scale
        if hidden is not None:
            scores[..., hidden] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return [torch.from_numpy(np.matmul(scores, v))]
    return run


def calls_of(case):
    """{name: call} of heed and of every peer that has the case, and heed's kernel."""
    dtype = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(1)
    draw = lambda heads: torch.randn(BATCH, heads, case["length"], case["head_dim"],
                                     generator=generator).to(dtype)
    q, k, v, d_o = (draw(heads) for heads in (HEADS, case["kv_heads"], case["kv_heads"], HEADS))
    causal, heed = case["causal"], Heed(q, k, v, case["causal"])
    if case["op"] == "backward":
        heed.prepare_backward(q, k, v, d_o)
        return {"heed": heed.backward, "torch": torch_backward(q, k, v, d_o, causal)}, heed.kernel
    calls = {"heed": heed.forward, "torch": lambda: [sdpa(q, k, v, causal)]}
    if has_onnx(case):
        calls["onnxruntime"] = onnx_forward(q, k, v, causal)
    if (case["kv_heads"] == HEADS and dtype == torch.float32 and
            case["length"] <= OPTIONS.numpy_limit):
        calls["numpy"] = numpy_forward(q, k, v, causal)
    return calls, heed.kernel


def difference(results, expected):
    """Largest difference of the tensors, relative to the largest element of each."""
    worst = 0.0
    for one, other in zip(results, expected):
        largest = other.float().abs().max().item()
        off = (one.float() - other.float()).abs().max().item() / largest
        worst = off if not off <= worst else worst
    return worst


def useful_flops(case):
    pairs = case["length"] * (case["length"] + 1) // 2 if case["causal"] else case["length"] ** 2
    per_pair = {"forward": 4, "backward": 10}[case["op"]] * case["head_dim"]
    return float(BATCH * HEADS * pairs * per_pair)


def measure(case):
    calls, kernel = calls_of(case)
    with torch.no_grad() if case["op"] == "forward" else torch.enable_grad():
        expected = calls["torch"]()
        off = {name: difference(call(), expected) for name, call in calls.items()}
        repeats = {name: max(1, int(OPTIONS.slice_seconds / timed(call, 1, OPTIONS.threads)))
                   for name, call in calls.items()}
        times = {name: [] for name in calls}
        for _ in range(OPTIONS.rounds):
            for name, call in calls.items():
                times[name].append(timed_alone(call, repeats[name], OPTIONS.threads))
    ratio = {name: statistics.median(t / own for t, own in zip(times[name], times["heed"]))
             for name in calls}
    seconds = {name: statistics.median(samples) for name, samples in times.items()}
    return {**case, "kernel": kernel, "seconds": seconds, "ratio": ratio,
            "tflops": {name: useful_flops(case) / s / 1e12 for name, s in seconds.items()},
            "difference_to_torch": off}


def measure_decode(case):
    """A case of compare_cpu_decode.py in the words of this one."""
    result = compare_cpu_decode.measure(
        {"dtype": case["dtype"], "batch": 1, "group": DECODE_GROUP, "keys": case["length"]},
        OPTIONS)
    flops = 4.0 * case["heads"] * case["length"] * case["head_dim"]
    seconds = {"heed": result["seconds"], "torch": min(result["peer_seconds"].values())}
    return {**case, "kernel": result["kernel"], "seconds": seconds,
            "ratio": {"heed": 1.0, "torch": result["speedup"]},
            "tflops": {name: flops / s / 1e12 for name, s in seconds.items()},
            "gigabytes_per_second": result["gigabytes_per_second"],
            "difference_to_torch": {
                "heed": result["max_abs_difference"] / result["largest"], "torch": 0.0}}


def cases():
    numbers = lambda text: [int(part) for part in text.split(",")]
    for op in OPTIONS.ops.split(","):
        if op == "decode":
            for dtype in OPTIONS.dtypes.split(","):
                for length in numbers(OPTIONS.decode_lengths):
                    kv_heads = compare_cpu_decode.KV_HEADS
                    yield {"op": op, "dtype": dtype, "heads": kv_heads * DECODE_GROUP,
                           "kv_heads": kv_heads, "head_dim": compare_cpu_decode.HEAD_DIM,
                           "causal": False, "length": length}
            continue
        for dtype in OPTIONS.dtypes.split(","):
            for kv_heads in numbers(OPTIONS.kv_heads):
                for head_dim in numbers(OPTIONS.head_dims):
                    for causal in (False, True):
                        for length in numbers(OPTIONS.lengths):
                            yield {"op": op, "dtype": dtype, "heads": HEADS, "kv_heads": kv_heads,
                                   "head_dim": head_dim, "causal": causal, "length": length}


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def save(results):
    if OPTIONS.json:
        report = {"cpu": cpu_model(), "commit": OPTIONS.commit, "threads": OPTIONS.threads,
                  "rounds": OPTIONS.rounds,
                  "clock": "CPU time of the process" if OPTIONS.threads == 1 else "wall",
                  "torch": torch.__version__,
                  "onnxruntime": onnxruntime.__version__ if onnxruntime else None,
                  "numpy": np.__version__, "cases": results}
        pathlib.Path(OPTIONS.json).write_text(json.dumps(report, indent=1) + "\n")


def draw_ratios(results):
    """One panel per peer: how many times as long it takes, by length, a line per kind of case."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return
    peers = sorted({peer for r in results for peer in r["ratio"] if peer != "heed"})
    if not OPTIONS.json or not peers:
        return
    figure, panels = pyplot.subplots(1, len(peers), figsize=(6 * len(peers), 6), squeeze=False)
    for panel, peer in zip(panels[0], peers):
        lines = {}
        for r in (r for r in results if peer in r["ratio"]):
            kind = (f"{r['op']} {r['dtype']} {r['heads']}/{r['kv_heads']} D = {r['head_dim']}"
                    f"{' causal' if r['causal'] else ''}")
            lines.setdefault(kind, []).append((r["length"], r["ratio"][peer]))
        for kind, points in lines.items():
            panel.plot(*zip(*points), marker="o", markersize=3, label=kind)
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set(xscale="log", yscale="log", xlabel="length",
                  ylabel=f"time of {peer} / time of heed", title=f"{cpu_model()}: beside {peer}")
        panel.legend(fontsize=5)
    figure.tight_layout()
    figure.savefig(pathlib.Path(OPTIONS.json).with_suffix(".svg"))


def main():
    torch.set_num_threads(OPTIONS.threads)
    results, wrong = [], 0
    for case in cases():
        result = measure_decode(case) if case["op"] == "decode" else measure(case)
        results.append(result)
        peers = ", ".join(f"{name} {result['ratio'][name]:.2f}x" for name in result["ratio"]
                          if name != "heed")
        heed_off = result["difference_to_torch"]["heed"]
        is_wrong = not heed_off <= TOLERANCE[case["dtype"]]
        wrong += is_wrong
        print(f"{case['op']:8} {case['dtype']:8} heads {case['heads']}/{case['kv_heads']} "
              f"D {case['head_dim']:3} {'causal' if case['causal'] else 'full  '} "
              f"L {case['length']:5}: {1e3 * result['seconds']['heed']:9.3f} ms; {peers}; "
              f"difference {heed_off:.1e}{' WRONG' if is_wrong else ''}", flush=True)
        # After every case: a run that is stopped keeps what it has.
        save(results)
    draw_ratios(results)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

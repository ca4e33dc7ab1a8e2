#!/usr/bin/env python3
"""Attention on a CPU beside PyTorch, ONNX Runtime and attention written in NumPy.

Every side gets the same numbers in the same memory ([B, H, S, D]; ONNX Runtime, which takes only
[B, S, H D], a copy in that order) and the same number of threads. Outputs are compared before
anything is timed. Rounds are interleaved, heed, peer, peer, heed, ..., and a ratio is the median
over rounds of peer time over heed time. Peers that are not installed or lack the case are left out:
ONNX Runtime runs fp32 forward passes, by MultiHeadAttention with as many KV heads as query heads
and by GroupQueryAttention, which is always causal, with fewer; NumPy fp32 forward passes whose
scores fit the memory. Of a backward pass only the pass itself is timed.

Op decode is one new token against a full cache of each of --decode-lengths keys, 32 query heads on
8 KV heads, D = 128, heed and PyTorch each in the faster of two memory layouts
(compare_cpu_decode.py).

Without options the whole of it runs, in 20 minutes or less on two cores: what would take longer
than --case-seconds, judged by the next shorter length, is left out and named at the end. On many
cores, or with more --case-seconds, everything runs. Results go to build/compare-cpu, a JSON file
and a plot for each op; bench/results/<machine> keeps those of known machines.

usage: compare_cpu.py [--threads N] [--ops forward,...] [--lengths 128,...] [--results FOLDER] ...
       compare_cpu.py --plot FILE.json ...
"""

import argparse
import ctypes as c
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

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


def some_of(*known):
    """The type of an option that lists words."""
    def check(text):
        for word in text.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r}: must be one of {', '.join(known)}")
        return text
    return check


def whole(text):
    """The type of an option that is a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)


def wholes(text):
    """The type of an option that lists such numbers."""
    for word in text.split(","):
        whole(word)
    return text


def shared_heads(text):
    for word in text.split(","):
        if HEADS % whole(word) != 0:
            raise argparse.ArgumentTypeError(f"{word}: must divide the {HEADS} query heads")
    return text


def seconds(text):
    """The type of an option that is a time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds above 0")
    return value


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=whole, default=os.cpu_count())
    parser.add_argument("--rounds", type=whole, default=5, help="most rounds of a case")
    parser.add_argument("--lengths", type=wholes, default="128,256,512,1024,2048,4096,8192,16384")
    parser.add_argument("--decode-lengths", type=wholes,
                        default="1024,2048,4096,8192,16384,32768,65536,131072")
    parser.add_argument("--head-dims", type=wholes, default="64,128")
    parser.add_argument("--kv-heads", type=shared_heads, default="8,2")
    parser.add_argument("--masks", type=some_of("full", "causal"), default="full,causal")
    parser.add_argument("--ops", type=some_of("forward", "backward", "decode"),
                        default="forward,backward,decode")
    parser.add_argument("--dtypes", type=some_of(*TOLERANCE), default="float32,bfloat16")
    parser.add_argument("--peers", type=some_of("torch", "onnxruntime", "numpy"),
                        default="torch,onnxruntime,numpy")
    parser.add_argument("--slice-seconds", type=seconds, default=0.02)
    parser.add_argument("--case-seconds", type=seconds, default=12,
                        help="most time of a case: sets its rounds, leaves out what takes longer")
    parser.add_argument("--commit", default=commit(), help="of heed, where git does not know it")
    parser.add_argument("--results", default=str(ROOT / "build/compare-cpu"),
                        help="folder of cpu-peers-<op>.json")
    parser.add_argument("--merge", action="store_true", help="keep the other cases of these files, "
                        "which a run of the same commit, machine and threads must have written")
    parser.add_argument("--plot", nargs="+", metavar="FILE", help="only draw these results again")
    return parser.parse_args()


OPTIONS = parse_options()
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
from cpu.peer_plots import draw  # noqa: E402

if OPTIONS.plot:
    sys.exit(0 if all([draw(path) for path in OPTIONS.plot]) else "matplotlib is not installed")

# Read by the BLAS of NumPy when it is loaded.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(OPTIONS.threads)

try:
    import numpy as np
    import torch
except ImportError as error:
    sys.exit(f"{error}: pip install torch numpy onnx onnxruntime matplotlib")
import compare_cpu_decode  # noqa: E402
from compare_cpu_decode import Tensor, await_idle, clock_of, timed, timed_alone  # noqa: E402
from cpu.peers import numpy_bytes, numpy_forward, onnx_forward, onnxruntime, sdpa  # noqa: E402
from cpu.peers import torch_backward  # noqa: E402
from heed import abi, library  # noqa: E402


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


def available_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return 1024 * int(line.split()[1])
    return 0


def has_peer(name, case):
    if name not in OPTIONS.peers.split(",") or case["dtype"] != "float32":
        return False
    if name == "onnxruntime":
        return onnxruntime is not None and (case["kv_heads"] == HEADS or case["causal"])
    return numpy_bytes(HEADS, case["length"], case["length"]) < 0.6 * available_bytes()


def calls_of(case, peers):
    """{name: call} of heed, PyTorch and those of `peers` that have the case; heed's kernel."""
    dtype = getattr(torch, case["dtype"])
    generator = torch.Generator().manual_seed(1)
    draw_heads = lambda heads: torch.randn(BATCH, heads, case["length"], case["head_dim"],
                                           generator=generator).to(dtype)
    q, k, v, d_o = (draw_heads(n) for n in (HEADS, case["kv_heads"], case["kv_heads"], HEADS))
    causal, heed = case["causal"], Heed(q, k, v, case["causal"])
    if case["op"] == "backward":
        heed.prepare_backward(q, k, v, d_o)
        return {"heed": heed.backward, "torch": torch_backward(q, k, v, d_o, causal)}, heed.kernel
    calls = {"heed": heed.forward, "torch": lambda: [sdpa(q, k, v, causal)]}
    if "onnxruntime" in peers:
        calls["onnxruntime"] = onnx_forward(q, k, v, causal, OPTIONS.threads)
    if "numpy" in peers:
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


class Estimate:
    """Seconds of one call of a case, from the longest case of its kind so far."""

    def __init__(self):
        self.known = {}

    @staticmethod
    def kind(case):
        return tuple(value for name, value in case.items() if name != "length")

    def seconds(self, case, name):
        """0 where nothing is known."""
        length, seconds = self.known.get((self.kind(case), name), (case["length"], 0.0))
        return seconds * (case["length"] / length) ** 2

    def learn(self, case, seconds):
        for name, value in seconds.items():
            self.known[self.kind(case), name] = (case["length"], value)


ESTIMATE = Estimate()


def first_calls(calls, case):
    """Differences to PyTorch and seconds of one call of each. Those that are or should be short are
    called again, when threads are there, memory is mapped and code is generated."""
    off, seconds, expected, clock = {}, {}, None, clock_of(OPTIONS.threads)
    is_short = useful_flops(case) < 1e10
    for name in ["torch", *(name for name in calls if name != "torch")]:
        await_idle()
        begin = clock()
        result = calls[name]()
        seconds[name] = clock() - begin
        expected = result if expected is None else expected
        off[name] = difference(result, expected)
        if is_short or seconds[name] < 1:
            await_idle()
            seconds[name] = timed(calls[name], 1, OPTIONS.threads)
    return {name: off[name] for name in calls}, seconds


def measure(case, peers):
    calls, kernel = calls_of(case, peers)
    with torch.no_grad() if case["op"] == "forward" else torch.enable_grad():
        off, first = first_calls(calls, case)
        ESTIMATE.learn(case, first)
        repeats = {name: max(1, int(OPTIONS.slice_seconds / first[name])) for name in calls}
        round_seconds = sum(max(OPTIONS.slice_seconds, first[name]) + 0.02 for name in calls)
        rounds = max(1, min(OPTIONS.rounds, int(OPTIONS.case_seconds / round_seconds)))
        times = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                # A long call needs none before it to wake its threads.
                clocked = timed if first[name] > 1 else timed_alone
                times[name].append(clocked(call, repeats[name], OPTIONS.threads))
    ratios = {name: [t / own for t, own in zip(times[name], times["heed"])] for name in calls}
    seconds = {name: statistics.median(samples) for name, samples in times.items()}
    return {**case, "kernel": kernel, "rounds": rounds, "seconds": seconds,
            "ratio": {name: statistics.median(each) for name, each in ratios.items()},
            "ratio_min": {name: min(each) for name, each in ratios.items()},
            "tflops": {name: useful_flops(case) / s / 1e12 for name, s in seconds.items()},
            "difference_to_torch": off}


def measure_decode(case):
    """A case of compare_cpu_decode.py in the words of this one."""
    result = compare_cpu_decode.measure(
        {"dtype": case["dtype"], "batch": 1, "group": DECODE_GROUP, "keys": case["length"]},
        OPTIONS)
    flops = 4.0 * case["heads"] * case["length"] * case["head_dim"]
    kept = {name: result[name] for name in (
        "kernel", "seconds", "layout_seconds", "heed_layout", "torch_layout", "ratio", "ratio_min",
        "gigabytes_per_second", "difference_to_torch")}
    return {**case, **kept, "rounds": OPTIONS.rounds,
            "tflops": {name: flops / s / 1e12 for name, s in result["seconds"].items()}}


def measure_or_leave_out(case):
    """(result or None, [what is left out])"""
    if case["op"] == "decode":
        return measure_decode(case), []
    left_out, peers = [], []
    limit = OPTIONS.case_seconds / 2
    for name in ("onnxruntime", "numpy"):
        if case["op"] != "forward" or not has_peer(name, case):
            continue
        seconds = ESTIMATE.seconds(case, name)
        if seconds > limit:
            left_out.append(f"{name} of {case_text(case)}: would take {seconds:.0f} s a call")
        else:
            peers.append(name)
    seconds = sum(ESTIMATE.seconds(case, name) for name in ("heed", "torch", *peers))
    if seconds > limit:
        return None, [f"{case_text(case)}: would take {seconds:.0f} s a round"]
    return measure(case, peers), left_out


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
                    for causal in (mask == "causal" for mask in OPTIONS.masks.split(",")):
                        for length in numbers(OPTIONS.lengths):
                            yield {"op": op, "dtype": dtype, "heads": HEADS, "kv_heads": kv_heads,
                                   "head_dim": head_dim, "causal": causal, "length": length}


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def case_text(case):
    return (f"{case['op']:8} {case['dtype']:8} heads {case['heads']}/{case['kv_heads']} "
            f"D {case['head_dim']:3} {'causal' if case['causal'] else 'full  '} "
            f"L {case['length']:6}")


class Results:
    """The file of one op."""

    def __init__(self, op):
        self.path = pathlib.Path(OPTIONS.results) / f"cpu-peers-{op}.json"
        self.head = {"cpu": cpu_model(), "commit": OPTIONS.commit, "threads": OPTIONS.threads,
                     "clock": "CPU time of the process" if OPTIONS.threads == 1 else "wall",
                     "torch": torch.__version__,
                     "onnxruntime": onnxruntime.__version__ if onnxruntime else None,
                     "numpy": np.__version__}
        self.cases, self.runs = {}, 1
        if OPTIONS.merge and self.path.exists():
            self.merge(json.loads(self.path.read_text()))

    def merge(self, before):
        for name, value in self.head.items():
            if before[name] != value:
                sys.exit(f"--merge: {self.path} has {name} = {before[name]}, this run {value}")
        self.runs += before["runs"]
        for case in before["cases"]:
            self.add(case)

    def add(self, result):
        key = tuple(result[name] for name in ("dtype", "kv_heads", "head_dim", "causal", "length"))
        self.cases[key] = result

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ordered = [self.cases[key] for key in sorted(self.cases)]
        text = json.dumps({**self.head, "runs": self.runs, "cases": ordered}, indent=1)
        self.path.write_text(text + "\n")


def run(files):
    """Measures every case into the file of its op; (number of wrong results, what was left out)."""
    wrong, left_out = 0, []
    for case in cases():
        result, without = measure_or_leave_out(case)
        left_out += without
        if result is None:
            continue
        peers = ", ".join(f"{name} {result['ratio'][name]:.2f}x" for name in result["ratio"]
                          if name != "heed")
        is_wrong = [name for name, off in result["difference_to_torch"].items()
                    if not off <= TOLERANCE[case["dtype"]]]
        wrong += "heed" in is_wrong
        print(f"{case_text(case)}: {1e3 * result['seconds']['heed']:9.3f} ms; {peers}; "
              f"difference {result['difference_to_torch']['heed']:.1e}"
              + "".join(f"; {name} is WRONG" for name in is_wrong), flush=True)
        files[case["op"]].add(result)
        # After every case: a run that is stopped keeps what it has.
        files[case["op"]].save()
    return wrong, left_out


def main():
    torch.set_num_threads(OPTIONS.threads)
    if onnxruntime is None:
        print("onnxruntime or onnx is not installed: pip install onnx onnxruntime", flush=True)
    files = {op: Results(op) for op in OPTIONS.ops.split(",")}
    begin = time.monotonic()
    try:
        wrong, left_out = run(files)
    except KeyboardInterrupt:
        wrong, left_out = 0, ["the rest: interrupted"]
    for text in left_out:
        print(f"left out: {text}")
    for file in files.values():
        if file.cases:
            print(f"wrote {file.path}", *(f"and {path}" for path in draw(file.path)))
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

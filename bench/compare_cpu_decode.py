#!/usr/bin/env python3
"""Decode with grouped heads on a CPU beside PyTorch, ONNX Runtime and NumPy.

One new token per sequence against a cache of S keys, 8 KV heads, D = 128. All sides get the same
numbers and threads, and outputs are compared. heed and PyTorch's scaled_dot_product_attention (with
enable_gqa) are timed with keys and values in both memory layouts, [B, S, H, D] and [B, H, S, D]; of
each the faster one counts, and layout_seconds has all. ONNX Runtime (GroupQueryAttention, which
also writes the new key and value into its cache) and NumPy take part in fp32, with [B, H, S, D].
Rounds are interleaved: heed, peer, heed, ...

usage: compare_cpu_decode.py [--threads N] [--rounds N] [--lengths 1024,...] [--json FILE]
"""

import argparse
import ctypes as c
import json
import pathlib
import statistics
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
from cpu import peers as other  # noqa: E402
from heed import abi, library  # noqa: E402

KV_HEADS, HEAD_DIM = 8, 128
DTYPES = {torch.float32: (abi.DTYPE_FLOAT, 32), torch.bfloat16: (abi.DTYPE_BFLOAT, 16),
          torch.float16: (abi.DTYPE_FLOAT, 16), torch.int32: (abi.DTYPE_INT, 32)}


class Tensor:
    """A torch tensor as heed_tensor_t; keeps what the structure points at alive."""

    def __init__(self, tensor):
        code, bits = DTYPES[tensor.dtype]
        self.tensor = tensor
        self.shape = (c.c_int64 * tensor.dim())(*tensor.shape)
        self.strides = (c.c_int64 * tensor.dim())(*tensor.stride())
        self.struct = abi.Tensor(tensor.data_ptr(), abi.Device(abi.DEVICE_CPU, 0), tensor.dim(),
                                 abi.DType(code, bits, 1), self.shape, self.strides, 0)

    def pointer(self):
        return c.pointer(self.struct)


class Decode:
    """One prepared call of heed_decode."""

    def __init__(self, q, k, v, threads):
        self.o = torch.empty_like(q)
        lengths = torch.full((q.shape[0],), k.shape[1], dtype=torch.int32)
        self.tensors = [Tensor(t) for t in (q, k, v, self.o, lengths)]
        q, k, v, o, lengths = (t.pointer() for t in self.tensors)
        self.exec = abi.ExecArgs(num_threads=threads)
        self.args = abi.DecodeArgs(q=q, k_cache=k, v_cache=v, o=o, cache_lengths=lengths,
                                   exec=c.pointer(self.exec))
        plan = abi.PlanInfo()
        library.check(library.load().heed_plan(abi.OP_DECODE, c.byref(self.args), c.byref(plan)))
        self.kernel = plan.kernel_id.decode()
        self.workspace = torch.empty(plan.workspace_bytes + 64, dtype=torch.uint8)
        self.exec.workspace = (self.workspace.data_ptr() + 63) // 64 * 64
        self.exec.workspace_bytes = plan.workspace_bytes

    def __call__(self):
        library.check(library.load().heed_decode(c.byref(self.args)))
        return self.o


def clock_of(threads):
    """This process' CPU time for one thread, which stands still while other processes have the
    core, else the wall clock, which also counts threads that wait."""
    return time.process_time if threads == 1 else time.perf_counter


def timed(call, repeats, threads):
    """Seconds of one call."""
    clock = clock_of(threads)
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def await_idle():
    """Workers of whoever ran last spin in wait of work, ONNX Runtime's and OpenMP's for up to a
    tenth of a second: until this process leaves nine tenths of a core idle, or for a second."""
    for _ in range(50):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        time.sleep(0.02)
        if time.process_time() - cpu_begin < 0.1 * (time.perf_counter() - begin):
            return


def timed_alone(call, repeats, threads):
    """Of all sides only this one's threads are awake."""
    await_idle()
    call()
    return timed(call, repeats, threads)


TOKENS_FIRST, HEADS_FIRST = "[B,S,H,D]", "[B,H,S,D]"


def calls_of(q, k, v, threads):
    """{name: call that returns o as [B, Hq, 1, D]}, of both layouts of heed and PyTorch, and heed's
    kernel; q, k and v as [B, S, H, D]."""
    query, *tokens_first = (t.transpose(1, 2) for t in (q, k, v))
    heads_first = [t.contiguous() for t in tokens_first]
    calls = {}
    for layout, (keys, values) in ((TOKENS_FIRST, tokens_first), (HEADS_FIRST, heads_first)):
        decode = Decode(q, keys.transpose(1, 2), values.transpose(1, 2), threads)
        calls[f"heed {layout}"] = lambda decode=decode: decode().transpose(1, 2)
        calls[f"torch {layout}"] = lambda keys=keys, values=values: other.sdpa(query, keys, values,
                                                                               False)
    if q.dtype == torch.float32:
        if other.onnxruntime is not None:
            onnx_call = other.onnx_decode(query, *heads_first, threads)
            calls["onnxruntime"] = lambda: onnx_call()[0]
        numpy_call = other.numpy_forward(query, *heads_first, False)
        calls["numpy"] = lambda: numpy_call()[0]
    return calls, decode.kernel


def faster_layout(side, times):
    return min((name for name in times if name.startswith(side)),
               key=lambda name: statistics.median(times[name]))


def measure(case, options):
    """ratio: how many times as long each peer takes, the median over rounds."""
    dtype = getattr(torch, case["dtype"])
    heads = KV_HEADS * case["group"]
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    q = draw(case["batch"], 1, heads, HEAD_DIM)
    k, v = (draw(case["batch"], case["keys"], KV_HEADS, HEAD_DIM) for _ in range(2))
    calls, kernel = calls_of(q, k, v, options.threads)
    expected = calls[f"torch {HEADS_FIRST}"]().float()
    largest = expected.abs().max().item()
    difference = {name: (call().float() - expected).abs().max().item() / largest
                  for name, call in calls.items()}
    repeats = {name: max(1, int(0.02 / timed(call, 1, options.threads)))
               for name, call in calls.items()}
    times = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            times[name].append(timed_alone(call, repeats[name], options.threads))
    of_layout = {name: statistics.median(samples) for name, samples in times.items()}
    chosen = {side: faster_layout(side, times) for side in ("heed", "torch")}
    chosen |= {name: name for name in ("onnxruntime", "numpy") if name in times}
    ratios = {side: [t / own for t, own in zip(times[name], times[chosen["heed"]])]
              for side, name in chosen.items()}
    seconds = {side: of_layout[name] for side, name in chosen.items()}
    kv_bytes = 2 * k.numel() * k.element_size()
    return {**case, "kernel": kernel, "seconds": seconds, "layout_seconds": of_layout,
            "heed_layout": chosen["heed"].removeprefix("heed "),
            "torch_layout": chosen["torch"].removeprefix("torch "),
            "ratio": {side: statistics.median(each) for side, each in ratios.items()},
            "ratio_min": {side: min(each) for side, each in ratios.items()},
            "gigabytes_per_second": kv_bytes / seconds["heed"] / 1e9,
            "difference_to_torch": {
                side: max(off for name, off in difference.items() if name.startswith(side))
                for side in chosen}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", default="1024,8192,65536")
    parser.add_argument("--groups", default="4,8")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = []
    for dtype in options.dtypes.split(","):
        for keys in (int(text) for text in options.lengths.split(",")):
            for group in (int(text) for text in options.groups.split(",")):
                case = {"dtype": dtype, "batch": 1, "group": group, "keys": keys}
                result = measure(case, options)
                results.append(result)
                peers = ", ".join(
                    f"{name} {ratio:.2f}x (at least {result['ratio_min'][name]:.2f})"
                    for name, ratio in result["ratio"].items() if name != "heed")
                print(f"{dtype:9} G {group} keys {keys:6}: {result['seconds']['heed'] * 1e6:9.1f} "
                      f"us, {result['gigabytes_per_second']:6.1f} GB/s; {peers}; heed with "
                      f"{result['heed_layout']}, PyTorch with {result['torch_layout']}; difference "
                      f"{result['difference_to_torch']['heed']:.1e}", flush=True)
    if options.json:
        report = {"torch": torch.__version__, "threads": options.threads,
                  "rounds": options.rounds, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    # Of the largest element.
    tolerance = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}
    wrong = [r for r in results if not r["difference_to_torch"]["heed"] <= tolerance[r["dtype"]]]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

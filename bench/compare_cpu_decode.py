#!/usr/bin/env python3
"""Decode with grouped heads on a CPU beside PyTorch's scaled_dot_product_attention.

One new token per sequence against a cache of S keys, 8 KV heads, D = 128. Both sides get the same
numbers and threads, and outputs are compared. PyTorch is timed with keys and values in both memory
layouts, [B, S, H, D] seen through a transpose and [B, H, S, D], with enable_gqa; the faster one
counts. Rounds are interleaved: heed, peer, heed, ...

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
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


def timed(call, repeats, threads):
    """Seconds of one call: of this process' CPU time for one thread, which stands still while other
    processes have the core, else by the wall clock, which also counts threads that wait."""
    clock = time.process_time if threads == 1 else time.perf_counter
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def timed_alone(call, repeats, threads):
    """Other sides' workers may still spin in wait of work: they sleep first, then these wake up."""
    time.sleep(0.02)
    call()
    return timed(call, repeats, threads)


def measure(case, options):
    dtype = getattr(torch, case["dtype"])
    heads = KV_HEADS * case["group"]
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    q = draw(case["batch"], 1, heads, HEAD_DIM)
    k, v = (draw(case["batch"], case["keys"], KV_HEADS, HEAD_DIM) for _ in range(2))
    decode = Decode(q, k, v, options.threads)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    query = q.transpose(1, 2)
    transposed = [t.transpose(1, 2) for t in (k, v)]
    contiguous = [t.contiguous() for t in transposed]
    peers = {"B,S,H,D": lambda: sdpa(query, *transposed, enable_gqa=True),
             "B,H,S,D": lambda: sdpa(query, *contiguous, enable_gqa=True)}
    difference = (decode().float() - peers["B,H,S,D"]().transpose(1, 2).float()).abs().max().item()
    largest = peers["B,H,S,D"]().float().abs().max().item()
    repeats = max(1, int(0.02 / timed(decode, 1, options.threads)))
    peer_repeats = {name: max(1, int(0.02 / timed(call, 1, options.threads)))
                    for name, call in peers.items()}
    ours, theirs = [], {name: [] for name in peers}
    for _ in range(options.rounds):
        ours.append(timed_alone(decode, repeats, options.threads))
        for name, call in peers.items():
            theirs[name].append(timed_alone(call, peer_repeats[name], options.threads))
    medians = {name: statistics.median(times) for name, times in theirs.items()}
    best = min(medians, key=medians.get)
    ratios = [peer / own for peer, own in zip(theirs[best], ours)]
    kv_bytes = 2 * k.numel() * k.element_size()
    return {**case, "kernel": decode.kernel, "seconds": statistics.median(ours),
            "peer_seconds": medians, "peer_layout": best,
            "speedup": statistics.median(ratios), "speedup_min": min(ratios),
            "gigabytes_per_second": kv_bytes / statistics.median(ours) / 1e9,
            "max_abs_difference": difference, "largest": largest}


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
                print(f"{dtype:9} G {group} keys {keys:6}: {result['seconds'] * 1e6:9.1f} us, "
                      f"{result['gigabytes_per_second']:6.1f} GB/s, {result['speedup']:5.2f}x "
                      f"PyTorch ({result['peer_layout']}; at least {result['speedup_min']:.2f}), "
                      f"difference {result['max_abs_difference']:.1e}", flush=True)
    if options.json:
        report = {"torch": torch.__version__, "threads": options.threads,
                  "rounds": options.rounds, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}
    wrong = [r for r in results if r["max_abs_difference"] > tolerance[r["dtype"]]]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

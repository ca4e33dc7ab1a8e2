#!/usr/bin/env python3
"""Decode over latent vectors (MLA, 576 / 512): values are columns of the keys, one KV head.

    python bench/gpu/latent.py --library build/release/libheed.so [--json FILE]

Times are of CUDA graphs of ten calls, medians of interleaved rounds, beside a plain read of the
keys in graphs too. Every output of a case's last sequence is compared with float64 first.
"""

import argparse
import json
import math
import statistics
import sys

import decode
from heed_library import Heed

HEAD_DIM, HEAD_DIM_V = 576, 512
CASES = [(heads, batch, length) for batch, length in ((1, 32768), (16, 4096), (64, 8192))
         for heads in (16, 64, 128)]
MOST_ERROR = 4e-3  # of the norm: probabilities and outputs are rounded to bf16


def make_tensors(torch, heads, batch, length):
    k = torch.randn((batch, length, 1, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
    q = torch.randn((batch, 1, heads, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
    o = torch.full((batch, 1, heads, HEAD_DIM_V), math.nan, device="cuda", dtype=torch.bfloat16)
    lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
    return {"q": q, "k_cache": k, "v_cache": k[..., :HEAD_DIM_V], "o": o, "cache_lengths": lengths}


def relative_error(torch, tensors):
    q, k = tensors["q"][-1, 0].double(), tensors["k_cache"][-1, :, 0].double()
    expected = ((q @ k.mT) * HEAD_DIM**-0.5).softmax(-1) @ k[:, :HEAD_DIM_V]
    return ((tensors["o"][-1, 0].double() - expected).norm() / expected.norm()).item()


def measure(torch, heed, case, rounds):
    heads, batch, length = case
    tensors = make_tensors(torch, heads, batch, length)
    call = heed.decode(tensors)
    call(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    error = relative_error(torch, tensors)
    if not error <= MOST_ERROR:
        sys.exit(f"{case}: {call.kernel_id}: relative error {error}")
    words = tensors["k_cache"].view(-1).view(torch.float32)
    runs = {"heed": lambda: call(torch.cuda.current_stream().cuda_stream),
            "read": lambda: words.amax()}
    graphs = {name: decode.capture(torch, run) for name, run in runs.items()}
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(decode.time_us(torch, graph, 3))
    us = {name: statistics.median(samples) for name, samples in times.items()}
    num_bytes = tensors["k_cache"].numel() * 2
    return {"heads": heads, "batch": batch, "length": length, "kernel": call.kernel_id,
            "relative_error": error, "us": us,
            "gb_per_s": {name: num_bytes / value / 1e3 for name, value in us.items()},
            "tflops": 2 * batch * length * heads * (HEAD_DIM + HEAD_DIM_V) / us["heed"] / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    import torch
    heed = Heed(options.library)
    results = []
    for case in CASES:
        entry = measure(torch, heed, case, options.rounds)
        results.append(entry)
        print(f"{entry['heads']:4} heads, {entry['batch']:3} x {entry['length']:6}: "
              f"{entry['us']['heed']:8.1f} us, {entry['gb_per_s']['heed']:6.0f} GB/s "
              f"({entry['us']['read'] / entry['us']['heed']:.2f} of a plain read), "
              f"{entry['tflops']:5.0f} TFLOPS, {entry['kernel']}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "cases": results}, file, indent=1)


if __name__ == "__main__":
    main()

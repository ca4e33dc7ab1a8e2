#!/usr/bin/env python3
"""Host time of one call from Python, beside PyTorch's attention: what a caller waits for before the
GPU has the work.

    pip install . && python bench/python_overhead.py [--json FILE]

Rounds of (heed, flash backend, PyTorch's own choice), each 100 calls without a synchronisation
between them, on problems so small that the GPU keeps up; medians over rounds. The bar is 20 us for
heed.attention without gradients.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import heed
import heed.compat.flash_attn

BAR_US = 20.0
SHAPES = [(1, 128, 8, 64), (1, 512, 8, 128)]  # B, S, H, D
CALLS, ROUNDS, WARM_CALLS = 100, 31, 200


def us_per_call(function):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
    microseconds = (time.perf_counter() - begin) / CALLS * 1e6
    torch.cuda.synchronize()
    return microseconds


@torch.no_grad()
def measure(shape):
    """name -> median in us."""
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    heads_first = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    functions = {
        "heed.attention": lambda: heed.attention(q, k, v),
        "heed.attention causal": lambda: heed.attention(q, k, v, causal=True),
        "heed.compat flash_attn_func": lambda: heed.compat.flash_attn.flash_attn_func(q, k, v),
        "sdpa": lambda: F.scaled_dot_product_attention(*heads_first),
    }
    samples = {name: [] for name in (*functions, "sdpa, flash")}
    for at in range(ROUNDS):
        for name, function in functions.items():
            if at == 0:
                for _ in range(WARM_CALLS):
                    function()
            samples[name].append(us_per_call(function))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            samples["sdpa, flash"].append(us_per_call(functions["sdpa"]))
    return {name: statistics.median(values) for name, values in samples.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="record the result here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("python_overhead: no CUDA device")
    record = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "us": {}}
    is_reached = True
    for shape in SHAPES:
        result = measure(shape)
        record["us"][str(shape)] = result
        is_reached &= result["heed.attention"] < BAR_US
        print(shape, ", ".join(f"{name} {us:.1f} us" for name, us in result.items()))
    print(f"{record['card']}: bar {BAR_US:.0f} us " + ("reached" if is_reached else "MISSED"))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(record, indent=1) + "\n")
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())

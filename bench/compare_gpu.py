#!/usr/bin/env python3
"""heed beside PyTorch's attention backends on one GPU, in one process.

    python bench/compare_gpu.py --preset sm80 --json run1.json
    python bench/compare_gpu.py --preset sm80 --json run2.json --repeat-of run1.json

Each case: outputs checked against float64 attention, then rounds of (heed, peer, peer, ...), each
timed by CUDA events over a fixed number of calls; the median over rounds counts. Operations: 4 B H
Sq Skv D for forward (half when causal), 2.5 times that for backward. Percentages are of an 8192^3
16-bit matrix product measured in the same run. Workspaces are the callers' and are not cleared
between calls. A case with a bar says whether it was reached; a bar holds when two calls reach it,
which --repeat-of shows. Beside the JSON come plots, where matplotlib is installed.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

from gpu.backward_features import measure_backward_features
from gpu.cases import FAMILY_OF_PRESET, PEERS_OF_PRESET, PRESETS, Case, judge, preset_cases
from gpu.decode import decode_cases, measure_decode, print_decode
from gpu.features import measure_features
from gpu.heed_library import Heed
from gpu.merge import merge, table
from gpu.plots import draw

PEERS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION",
         "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
# Those whose records have a form of their own.
PRESETS_OF_THEIR_OWN = ("decode", "hopper-features", "hopper-backward-features")
MIN_ROUNDS = 5
MATH_MAX_LENGTH = 1024  # the math backend stores every score, several times


def make_tensors(torch, case, batch=None, heads=None):
    """Of the case, or of another batch and number of heads."""
    batch, heads = batch or case.batch, heads or case.heads
    shape = (batch, case.length, heads, case.head_dim)
    dtype = getattr(torch, case.dtype)
    new = lambda: torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    tensors = {"q": new(), "k": new(), "v": new()}
    tensors["o"] = torch.full(shape, math.nan, device="cuda", dtype=dtype)
    tensors["lse"] = torch.full((batch, heads, case.length), math.nan, device="cuda")
    if case.op == "backward":
        tensors["d_o"] = new()
        for name in ("dq", "dk", "dv"):
            tensors[name] = torch.full(shape, math.nan, device="cuda", dtype=dtype)
    return tensors


def reference(torch, case, tensors, head):
    """float64 results of one head of the last sequence: o, and for backward dq, dk, dv."""
    pick = lambda name: tensors[name][-1, :, head].double()
    q, k, v = (pick(n).requires_grad_(case.op == "backward") for n in ("q", "k", "v"))
    s = q @ k.T * case.head_dim**-0.5
    if case.causal:
        visible = torch.ones(case.length, case.length, dtype=torch.bool, device="cuda").tril()
        s = s.masked_fill(~visible, -math.inf)
    o = s.softmax(-1) @ v
    if case.op == "forward":
        return {"o": o}
    gradients = torch.autograd.grad(o, (q, k, v), pick("d_o"))
    return dict(zip(("dq", "dk", "dv"), gradients))


def largest_error(torch, case, tensors):
    """Largest relative Frobenius error over the outputs of one head."""
    if case.length > 16384:
        return None  # the float64 scores would not fit beside everything else
    head = tensors["q"].shape[2] - 1
    worst = 0.0
    for name, expected in reference(torch, case, tensors, head).items():
        actual = tensors[name][-1, :, head].double()
        worst = max(worst, ((actual - expected).norm() / expected.norm()).item())
    return worst


def peer_call(torch, case, tensors, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kind = getattr(SDPBackend, PEERS[backend])
    q, k, v = (tensors[n].transpose(1, 2).detach() for n in ("q", "k", "v"))
    attend = torch.nn.functional.scaled_dot_product_attention
    if case.op == "forward":
        def run():
            with sdpa_kernel(kind):
                return attend(q, k, v, is_causal=case.causal)
        return run
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    with sdpa_kernel(kind):
        o = attend(q, k, v, is_causal=case.causal)
    d_o = tensors["d_o"].transpose(1, 2)
    return lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)


def time_ms(torch, call, num_calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(num_calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / num_calls


def calls_per_round(torch, call, round_ms):
    call()
    torch.cuda.synchronize()
    return max(2, min(200, round(round_ms / max(time_ms(torch, call, 2), 1e-3))))


def matmul_tflops(torch):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    call = lambda: a @ b
    count = calls_per_round(torch, call, 100)
    return 2 * n**3 / statistics.median(time_ms(torch, call, count) for _ in range(5)) / 1e9


def peers_of(case, options):
    """Those asked for that can take the case, and math where it is small."""
    if case.dtype == "float32":
        peers = ["efficient"]
    else:
        peers = [peer for peer in options.peers.split(",") if peer != "math"]
    if case.length <= options.math_up_to:
        peers.append("math")
    return peers


def measure_case(torch, heed, case, options):
    tensors = make_tensors(torch, case)
    stream = torch.cuda.current_stream().cuda_stream
    forward = heed.forward({n: tensors[n] for n in ("q", "k", "v", "o", "lse")}, case.causal,
                           options.forward_kernel)
    forward(stream)
    call = forward
    if case.op == "backward":
        call = heed.backward(tensors, case.causal, options.backward_kernel)
        call(stream)
    torch.cuda.synchronize()
    error = largest_error(torch, case, tensors)
    entries = {"heed": lambda: call(stream)}
    for peer in peers_of(case, options):
        try:
            run = peer_call(torch, case, tensors, peer)
            run()
            entries[peer] = run
        except RuntimeError as reason:
            print(f"  {peer}: {str(reason).splitlines()[0]}", file=sys.stderr)
    counts = {name: calls_per_round(torch, run, options.round_ms) for name, run in entries.items()}
    times = {name: [] for name in entries}
    for _ in range(options.rounds):
        for name, run in entries.items():
            times[name].append(time_ms(torch, run, counts[name]))
    result = {"case": case.name, "op": case.op, "dtype": case.dtype, "head_dim": case.head_dim,
              "length": case.length, "causal": case.causal, "batch": case.batch,
              "heads": case.heads, "kernel": call.kernel_id,
              "workspace_bytes": call.plan.workspace_bytes, "relative_error": error, "ms": {},
              "tflops": {}, "ratio": {}}
    for name, samples in times.items():
        result["ms"][name] = {"median": statistics.median(samples), "min": min(samples),
                              "max": max(samples)}
        result["tflops"][name] = case.flops / statistics.median(samples) / 1e9
    for name in times:
        result["ratio"][name] = result["tflops"]["heed"] / result["tflops"][name]
    result["bar"] = judge(case, result["ratio"])
    return result


def measure_latency(torch, heed, rounds):
    """B=1, H=8, S=512, D=64, fp16, ten calls a graph, microseconds a call."""
    case = Case("forward", "float16", 64, 512, False)
    tensors = make_tensors(torch, case, batch=1, heads=8)
    call = heed.forward(tensors, False)
    entries = {"heed": lambda: call(torch.cuda.current_stream().cuda_stream)}
    entries.update({peer: peer_call(torch, case, tensors, peer) for peer in PEERS})
    graphs = {}
    for name, run in entries.items():
        side = torch.cuda.Stream()
        try:
            with torch.cuda.stream(side):
                for _ in range(3):
                    run()
        except RuntimeError as reason:
            print(f"  {name}: {str(reason).splitlines()[0]}", file=sys.stderr)
            continue
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(10):
                run()
    times = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            graph.replay()
            times[name].append(time_ms(torch, graph.replay, 50) * 100)
    medians = {name: statistics.median(samples) for name, samples in times.items()}
    best_peer = min((name for name in medians if name != "heed"), key=medians.get)
    return {"case": "latency fp16 B1 H8 S512 D64, graph of 10", "kernel": call.kernel_id,
            "relative_error": largest_error(torch, case, tensors), "us": medians,
            "best_peer": best_peer, "ratio": medians[best_peer] / medians["heed"]}


def host_overhead_us(torch, heed, shape):
    """(kernel, host time of a cached, prepared call through ctypes). shape: B, S, H, D"""
    batch, length, heads, head_dim = shape
    case = Case("forward", "float16", head_dim, length, False)
    call = heed.forward(make_tensors(torch, case, batch, heads), False)
    samples = []
    for _ in range(31):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            call.function(call.reference)
        samples.append((time.perf_counter() - begin) * 1e4)
    torch.cuda.synchronize()
    return call.kernel_id, statistics.median(samples)


def print_result(result, matmul):
    tflops, ratio = result["tflops"], result["ratio"]
    peers = "  ".join(f"{name} {tflops[name]:.0f} ({ratio[name]:.2f}x)"
                      for name in tflops if name != "heed")
    error = result["relative_error"]
    bar = result["bar"]
    verdict = "" if not bar else f"  bar {bar['ratio']:.2f} " + (
        "reached" if bar["reached"] else "MISSED")
    print(f"{result['case']:36s} heed {tflops['heed']:4.0f} ({tflops['heed'] / matmul:.0%})  "
          f"{peers}  err {'-' if error is None else format(error, '.1e')}  {result['kernel']}"
          f"{verdict}", flush=True)


def commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                              text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/release/src/libheed.so")
    parser.add_argument("--preset", default="sm80", choices=PRESETS)
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--peers", help="of " + ", ".join(PEERS) + "; the default is the preset's")
    parser.add_argument("--math-up-to", type=int, default=MATH_MAX_LENGTH,
                        help="longest length with the math backend as a peer; 0 = never")
    parser.add_argument("--forward-kernel", help="kernel id to force")
    parser.add_argument("--backward-kernel", help="kernel id to force")
    parser.add_argument("--decode-kernel", help="kernel id to force")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS)
    parser.add_argument("--round-ms", type=float, default=30.0)
    parser.add_argument("--json", help="write everything measured to this file, plots beside it")
    parser.add_argument("--repeat-of", help="JSON of an earlier call: print both as one table")
    parser.add_argument("--family", help="sm75, sm80 or sm90: only kernels of this family; the "
                                         "preset sm80 means sm80")
    options = parser.parse_args()
    if options.rounds < MIN_ROUNDS:
        parser.error(f"--rounds {options.rounds}: a median needs at least {MIN_ROUNDS}")
    if options.preset in PRESETS_OF_THEIR_OWN and options.repeat_of:
        parser.error(f"--repeat-of: the preset {options.preset} has no table of two calls yet")
    options.peers = options.peers or PEERS_OF_PRESET.get(options.preset, "flash,cudnn")
    unknown = set(options.peers.split(",")) - set(PEERS)
    if unknown:
        parser.error(f"--peers: unknown {', '.join(sorted(unknown))}")
    options.family = options.family or FAMILY_OF_PRESET.get(options.preset)
    return options


def measure_all(torch, heed, options, record):
    for case in preset_cases(options.preset):
        if options.filter not in case.name:
            continue
        try:
            result = measure_case(torch, heed, case, options)
            record["cases"].append(result)
            print_result(result, record["matmul_tflops"])
        except Exception as reason:  # one case must not lose the others' numbers
            record["failed"].append({"case": case.name, "reason": str(reason)})
            print(f"{case.name}: FAILED: {reason}", flush=True)
        torch.cuda.empty_cache()
    if options.preset in ("sm80", "latency"):
        record["latency"] = measure_latency(torch, heed, 2 * options.rounds + 1)
        print("latency", record["latency"])
        record["host_overhead_us"] = dict(host_overhead_us(torch, heed, shape) for shape in
                                          ((1, 128, 1, 64), (1, 1024, 32, 128)))
        for kernel, microseconds in record["host_overhead_us"].items():
            print(f"host time of a cached call of {kernel}: {microseconds:.2f} us")


def measure_all_decode(torch, heed, options, record):
    for case in decode_cases():
        if options.filter not in case.name:
            continue
        try:
            result = measure_decode(torch, heed, case, options)
            record["cases"].append(result)
            print_decode(result)
        except Exception as reason:  # one case must not lose the others' numbers
            record["failed"].append({"case": case.name, "reason": str(reason)})
            print(f"{case.name}: FAILED: {reason}", flush=True)
        torch.cuda.empty_cache()
    bars = [bar for case in record["cases"] for bar in case["bars"].values()]
    print(f"{sum(bar['reached'] for bar in bars)} of {len(bars)} bars reached in this call")


def print_repeat(options, record):
    with open(options.repeat_of, encoding="utf-8") as file:
        earlier = json.load(file)
    try:
        rows = merge(earlier, record)
    except ValueError as reason:
        print(f"--repeat-of {options.repeat_of}: {reason}")
        return
    print(table(rows))
    missed = [row["case"] for row in rows if row["holds"] is False]
    print(f"bars that do not hold in both calls: {', '.join(missed) or 'none'}")


def main():
    options = parse_options()
    if options.family:
        os.environ["HEED_CUDA_FAMILY"] = options.family
    import torch
    heed = Heed(options.library)
    card = torch.cuda.get_device_name(0)
    matmul = matmul_tflops(torch)
    print(f"{card}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"8192^3 bf16 product {matmul:.0f} TFLOP/s")
    record = {"card": card, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
              "commit": commit(), "command": " ".join(sys.argv), "matmul_tflops": matmul,
              "cases": [], "failed": []}
    if options.preset == "decode":
        measure_all_decode(torch, heed, options, record)
    elif options.preset == "hopper-features":
        measure_features(torch, heed, options, record)
    elif options.preset == "hopper-backward-features":
        measure_backward_features(torch, heed, options, record)
    else:
        measure_all(torch, heed, options, record)
        judged = [case for case in record["cases"] if case["bar"]]
        reached = sum(case["bar"]["reached"] for case in judged)
        print(f"{reached} of {len(judged)} bars reached in this call")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    if options.json and options.preset not in PRESETS_OF_THEIR_OWN:
        for path in draw(record, options.json):
            print(f"plot: {path}")
    if options.repeat_of:
        print_repeat(options, record)
    return 1 if record["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The preset `decode` of bench/compare_gpu.py: one query token over a key-value cache.

Times are of CUDA graphs of ten calls, medians of interleaved rounds. Beside PyTorch's backends
stands a plain read of as many bytes, in graphs too: what the memory system gives in this run.
"""

import math
import statistics
from dataclasses import dataclass

CALLS_PER_GRAPH = 10
LARGE_BYTES = 512 << 20
LEAST_OF_READ = 0.95  # of the bandwidth of a plain read, for large caches
FASTER = 1 / 0.85  # short sequences: 0.85 of cuDNN's time
PEERS = ["cudnn", "flash"]
# Least ratio to the time of this library's bf16 cache; int4 with a scale for 64 elements.
FORMATS = {"int8": 1.8, "fp8_e4m3": 1.8, "int4": 3.0}
LEAST_OF_CONTIGUOUS = {1: 0.8, 16: 0.95}  # by slots of a page


@dataclass
class DecodeCase:
    q_heads: int
    kv_heads: int
    head_dim: int
    batch: int
    length: int
    page_slots: int = 0  # 0: contiguous
    format: str = ""  # of FORMATS; empty: bf16

    @property
    def name(self):
        kind = f" page {self.page_slots}" if self.page_slots else f" {self.format}".rstrip()
        return (f"decode {self.q_heads}/{self.kv_heads}/{self.head_dim} B{self.batch} "
                f"S{self.length}{kind}")

    @property
    def kv_bytes(self):
        return 4 * self.batch * self.length * self.kv_heads * self.head_dim

    @property
    def bars(self):
        """Least ratios: to cuDNN's speed, and to that of a plain read."""
        if self.format:
            return {"bf16": FORMATS[self.format]}
        if self.page_slots:
            least = LEAST_OF_CONTIGUOUS.get(self.page_slots)
            return {"contiguous": least} if least else {}
        if self.kv_bytes >= LARGE_BYTES:
            return {"cudnn": 1.0, "read": LEAST_OF_READ}
        shape = (self.q_heads, self.kv_heads, self.head_dim)
        is_short = self.batch == 1 and (
            shape == (32, 8, 128) and self.length <= 4096 or
            shape == (14, 2, 64) and self.length <= 32768)
        return {"cudnn": FASTER if is_short else 1.0}


def decode_cases():
    cases = []
    for heads in ((14, 2, 64), (32, 8, 128), (32, 32, 128)):
        for batch, length in ((1, 1024), (1, 4096), (1, 32768), (1, 131072), (16, 4096),
                              (64, 4096), (64, 16384)):
            cases.append(DecodeCase(*heads, batch, length))
    cases += [DecodeCase(32, 8, 128, 16, 4096, page) for page in (1, 16, 256)]
    return cases + [DecodeCase(32, 8, 128, 64, 16384, format=name) for name in FORMATS]


def make_tensors(torch, case):
    new = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    rows = (case.batch, case.length, case.kv_heads, case.head_dim)
    tensors = {"q": new(case.batch, 1, case.q_heads, case.head_dim),
               "k_cache": new(*rows), "v_cache": new(*rows)}
    tensors["o"] = torch.full_like(tensors["q"], math.nan)
    tensors["cache_lengths"] = torch.full((case.batch,), case.length, device="cuda",
                                          dtype=torch.int32)
    return tensors


def paged(torch, case, tensors):
    """The same cache in pages of a pool, in random order."""
    pages = case.length // case.page_slots
    table = torch.randperm(case.batch * pages, device="cuda")
    pools = dict(tensors)
    for name in ("k_cache", "v_cache"):
        rows = tensors[name].view(-1, case.page_slots, case.kv_heads, case.head_dim)
        pools[name] = torch.empty_like(rows)
        pools[name][table] = rows
    pools["block_table"] = table.to(torch.int32).view(case.batch, pages)
    return pools


def quantised(torch, heed, case, tensors):
    """The same cache with a scale for every row, int4 for every 64 elements, and what it holds."""
    caches, held = dict(tensors, format=case.format), dict(tensors)
    for name in ("k", "v"):
        payload, scales = heed.quantize_kv(tensors[f"{name}_cache"], case.format,
                                           2 if case.format == "int4" else 1)
        caches[f"{name}_cache"], caches[f"{name}_scales"] = payload, scales
        last = payload[-1]
        if case.format == "int8":
            values = last.view(torch.int8).float()
        elif case.format == "int4":
            nibbles = torch.stack((last & 15, last >> 4), -1).flatten(-2).to(torch.int32)
            values = torch.where(nibbles < 8, nibbles, nibbles - 16).float()
        else:
            values = last.view(torch.float8_e4m3fn).float()
        values = values.unflatten(-1, (scales.shape[-1], -1)) * scales[-1][..., None]
        held[f"{name}_cache"] = values.flatten(-2)[None]
    return caches, held


def relative_error(torch, case, tensors):
    """Of the last sequence, against float64."""
    q = tensors["q"][-1, 0].double().view(case.kv_heads, -1, case.head_dim)
    k, v = (tensors[name][-1].double().transpose(0, 1) for name in ("k_cache", "v_cache"))
    expected = ((q @ k.mT) * case.head_dim**-0.5).softmax(-1) @ v
    actual = tensors["o"][-1, 0].double().view_as(expected)
    return ((actual - expected).norm() / expected.norm()).item()


def peer_call(torch, tensors, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kind = getattr(SDPBackend, {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}[backend])
    q, k, v = (tensors[n].transpose(1, 2) for n in ("q", "k_cache", "v_cache"))

    def run():
        with sdpa_kernel(kind):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    return run


def read_kernel():
    """A kernel that reads two arrays of int32 once and stores next to nothing."""
    import triton
    import triton.language as tl
    globals()["tl"] = tl  # where triton looks names of a function up

    @triton.jit
    def read(k, v, out, count, BLOCK: tl.constexpr, STEPS: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.int32)
        for step in tl.static_range(STEPS):
            where = at + step * BLOCK
            total |= tl.load(k + where, mask=where < count, other=0)
            total |= tl.load(v + where, mask=where < count, other=0)
        tl.store(out + at, total, mask=total == 0x12345678)

    return read


def read_call(torch, tensors):
    read = read_kernel()
    k, v = (tensors[name].view(-1).view(torch.int32) for name in ("k_cache", "v_cache"))
    count, block, steps = k.numel(), 2048, 2
    grid = ((count + block * steps - 1) // (block * steps),)
    out = torch.empty(grid[0] * block * steps, dtype=torch.int32, device="cuda")
    return lambda: read[grid](k, v, out, count, BLOCK=block, STEPS=steps, num_warps=8)


def sum_call(torch, tensors):
    k, v = (tensors[name].view(-1).view(torch.float32) for name in ("k_cache", "v_cache"))
    return lambda: (k.amax(), v.amax())


def capture(torch, run):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_PER_GRAPH):
            run()
    return graph


def time_us(torch, graph, replays):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (replays * CALLS_PER_GRAPH)


def measure_decode(torch, heed, case, options):
    tensors = make_tensors(torch, case)
    held = tensors
    caches = paged(torch, case, tensors) if case.page_slots else tensors
    if case.format:
        caches, held = quantised(torch, heed, case, tensors)
    call = heed.decode(caches, options.decode_kernel)
    call(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    error = relative_error(torch, case, held)
    entries = {"heed": lambda: call(torch.cuda.current_stream().cuda_stream)}
    if case.page_slots or case.format:
        whole = heed.decode(tensors, options.decode_kernel)
        name = "contiguous" if case.page_slots else "bf16"
        entries[name] = lambda: whole(torch.cuda.current_stream().cuda_stream)
    entries.update({peer: peer_call(torch, tensors, peer) for peer in PEERS})
    entries["read"] = read_call(torch, tensors)
    entries["amax"] = sum_call(torch, tensors)
    graphs = {}
    for name, run in entries.items():
        try:
            graphs[name] = capture(torch, run)
        except Exception as reason:  # a peer that cannot take the case
            print(f"  {name}: {str(reason).splitlines()[0]}", flush=True)
    first = {name: time_us(torch, graph, 2) for name, graph in graphs.items()}
    replays = {name: max(1, min(20, round(options.round_ms * 1e3 / (us * CALLS_PER_GRAPH))))
               for name, us in first.items()}
    times = {name: [] for name in graphs}
    for _ in range(options.rounds):
        for name, graph in graphs.items():
            times[name].append(time_us(torch, graph, replays[name]))
    us = {name: statistics.median(samples) for name, samples in times.items()}
    if "amax" in us:  # whichever plain read is faster
        us["read"] = min(us.get("read", math.inf), us.pop("amax"))
    ratio = {name: value / us["heed"] for name, value in us.items()}
    # Beside a bf16 cache tokens count, not bytes.
    bars = {name: {"ratio": least, "reached": ratio[name] >= least}
            for name, least in case.bars.items() if name in ratio}
    return {"case": case.name, "op": "decode", "kernel": call.kernel_id, "relative_error": error,
            "kv_bytes": case.kv_bytes, "us": us, "ratio": ratio, "bars": bars,
            "gb_per_s": {name: case.kv_bytes / value / 1e3 for name, value in us.items()}}


def print_decode(result):
    parts = [f"{name} {us:.1f} us ({result['gb_per_s'][name]:.0f} GB/s, "
             f"{result['ratio'][name]:.2f}x)" for name, us in result["us"].items()]
    verdict = " ".join(f"{name}>={bar['ratio']:.2f} {'reached' if bar['reached'] else 'MISSED'}"
                       for name, bar in result["bars"].items())
    print(f"{result['case']:32s} {'  '.join(parts)}  err {result['relative_error']:.1e}  "
          f"{result['kernel']}  {verdict}", flush=True)

"""The CPU bars beside what the committed results say, as a table for bench/README.md.

Used by readme_tables.py. A line of BARS names the bar, the file that answers it and how the file's
rows become values; nothing here is typed in from a run."""

import dataclasses
import json
import re
import typing

AMD, INTEL = "amd-epyc-7003", "intel-xeon-6-207"
INTEL_2 = "intel-xeon-6-207-2-cores"  # without AMX


@dataclasses.dataclass
class Bar:
    what: str
    limit: float
    file: str  # below bench/results
    values: typing.Callable  # of the parsed file: [value, ...]


def bench_rows(case, roof=None):
    """Rows of `heed bench --json` whose case matches: the value that its own bar judged, or the
    fraction of `roof`."""
    def values(report):
        rows = [row for row in report["rows"] if re.fullmatch(case, row["case"])]
        if roof is None:
            return [row["bar"]["value"] for row in rows if row.get("bar")]
        return [of["fraction"]["median"] for row in rows for of in row["roofs"]
                if of["name"] == roof]
    return values


def peer_ratios(peer, **wanted):
    """Ratios of `bench/compare_cpu.py` to a peer, of the cases whose fields are as wanted; a field
    may be a predicate."""
    def fits(case):
        return all(want(case[name]) if callable(want) else case[name] == want
                   for name, want in wanted.items())
    return lambda report: [case["ratio"][peer] for case in report["cases"]
                           if peer in case["ratio"] and fits(case)]


def decode_case(heads, threads=16):
    return rf"decode\.kv8\.bf16\.q1\.kv\d+\.{heads}\.d128(\.bhsd)?\.t{threads}"


def peers(machine, op):
    return f"{machine}/cpu-peers-{op}.json"


BARS = [
    Bar("bf16 by `vdpbf16ps`, D = 128, of `dot_bf16.avx512`", 0.86,
        f"{INTEL}/cpu-bf16-avx512.json",
        bench_rows("bf16.q4096.h1.d128.t1", roof="dot_bf16.avx512")),
    Bar("bf16 by `vdpbf16ps`, D = 64, of `dot_bf16.avx512`", 0.82,
        f"{INTEL}/cpu-bf16-avx512.json",
        bench_rows("bf16.q4096.h1.d64.t1", roof="dot_bf16.avx512")),
    Bar("bf16 by AMX, D = 128, of `dot_bf16.amx`", 0.86, f"{INTEL}/bf16-one-head.json",
        bench_rows("bf16.q4096.h1.d128.t1", roof="dot_bf16.amx")),
    Bar("bf16 by AMX, D = 64, of `dot_bf16.amx`", 0.82, f"{INTEL}/bf16-one-head.json",
        bench_rows("bf16.q4096.h1.d64.t1", roof="dot_bf16.amx")),
    Bar("int8, P V in fp32, D = 128", 0.87, f"{INTEL}/cpu-int8.json",
        bench_rows("i8.f32.q4096.h1.d128.t1")),
    Bar("int8, P V in bf16 by AMX, D = 128", 0.83, f"{INTEL}/cpu-int8-09fdc3e.json",
        bench_rows("i8.bf16.q4096.h1.d128.t1")),
    Bar("int8, P V in bf16 without AMX, D = 128", 0.83, f"{INTEL}/cpu-bf16-avx512.json",
        bench_rows("i8.bf16.q4096.h1.d128.t1", roof="mixed dot_i8.avx512 + dot_bf16.avx512")),
    Bar("int8, P V in u8 x int8, D = 128", 0.79, f"{INTEL}/cpu-int8.json",
        bench_rows("i8.u8.q4096.h1.d128.t1")),
    Bar("int8, P V in u8 x int8, D = 64", 0.70, f"{INTEL}/cpu-int8.json",
        bench_rows("i8.u8.q4096.h1.d64.t1")),
    Bar("int8, P V in u8 x int8, times as fast as fp32", 3, f"{INTEL}/cpu-int8.json",
        bench_rows("i8.u8.q4096.h2.d128.t1")),
    Bar("int8, P V in fp32 without AMX, D = 128", 0.87, f"{INTEL_2}/cpu.json",
        bench_rows("i8.f32.q4096.h1.d128.t1")),
    Bar("int8, P V in u8 x int8 without AMX, D = 128", 0.79, f"{INTEL_2}/cpu.json",
        bench_rows("i8.u8.q4096.h1.d128.t1")),
    Bar("int8, P V in u8 x int8 without AMX, D = 64", 0.70, f"{INTEL_2}/cpu.json",
        bench_rows("i8.u8.q4096.h1.d64.t1")),
    Bar("int8, P V in u8 x int8 without AMX, times as fast as fp32", 3, f"{INTEL_2}/cpu.json",
        bench_rows("i8.u8.q4096.h2.d128.t1")),
    Bar("fp32 backward, L = 4096, D = 128, of the FMA peak", 0.65, f"{AMD}/cpu-backward.json",
        bench_rows("backward.f32.q4096.h1.d128.t1")),
    Bar("fp32 backward with AVX-512, L = 4096, D = 128, of the FMA peak", 0.65,
        f"{INTEL_2}/cpu.json", bench_rows("backward.f32.q4096.h1.d128.t1")),
    Bar("decode of int8 caches, G = 1 and 4, of the read bandwidth", 0.80,
        f"{INTEL}/cpu-decode.json", bench_rows(decode_case("(h8|h32x8)"))),
    Bar("decode of int8 caches, G = 8, of the read bandwidth", 0.60,
        f"{INTEL}/cpu-decode.json", bench_rows(decode_case("h64x8"))),
    Bar("decode of int8 caches on 2 cores, G = 1 and 4, of the read bandwidth", 0.80,
        f"{INTEL_2}/cpu.json", bench_rows(decode_case("(h8|h32x8)", 2))),
    Bar("decode of int8 caches on 2 cores, G = 8, of the read bandwidth", 0.60,
        f"{INTEL_2}/cpu.json", bench_rows(decode_case("h64x8", 2))),
    Bar("PyTorch, fp32 forward, full", 1.15, peers(AMD, "forward"),
        peer_ratios("torch", dtype="float32", causal=False)),
    Bar("PyTorch, fp32 forward, causal, L = 1024", 1.5, peers(AMD, "forward"),
        peer_ratios("torch", dtype="float32", causal=True, length=1024)),
    Bar("PyTorch, fp32 backward, full", 1.5, peers(AMD, "backward"),
        peer_ratios("torch", dtype="float32", causal=False)),
    Bar("PyTorch, fp32 backward, causal", 1.5, peers(AMD, "backward"),
        peer_ratios("torch", dtype="float32", causal=True)),
    Bar("PyTorch, bf16 backward", 1.5, peers(AMD, "backward"),
        peer_ratios("torch", dtype="bfloat16")),
    Bar("PyTorch, decode, G = 4", 2, peers(AMD, "decode"), peer_ratios("torch")),
    Bar("ONNX Runtime, fp32 forward, full", 1.5, peers(AMD, "forward"),
        peer_ratios("onnxruntime", causal=False)),
    Bar("ONNX Runtime, fp32 forward, causal", 1.5, peers(AMD, "forward"),
        peer_ratios("onnxruntime", causal=True)),
    Bar("ONNX Runtime, fp32 decode, G = 4", 1.5, peers(AMD, "decode"),
        peer_ratios("onnxruntime")),
    Bar("PyTorch on 2 threads with AVX-512, fp32 forward, full", 1.15, peers(INTEL_2, "forward"),
        peer_ratios("torch", dtype="float32", causal=False)),
    Bar("PyTorch on 2 threads with AVX-512, fp32 forward, causal, L = 1024", 1.5,
        peers(INTEL_2, "forward"),
        peer_ratios("torch", dtype="float32", causal=True, length=1024)),
    Bar("PyTorch on 2 threads with AVX-512, bf16 forward", 1, peers(INTEL_2, "forward"),
        peer_ratios("torch", dtype="bfloat16")),
    Bar("PyTorch on 2 threads with AVX-512, fp32 backward, full", 1.5,
        peers(INTEL_2, "backward"), peer_ratios("torch", dtype="float32", causal=False)),
    Bar("PyTorch on 2 threads with AVX-512, fp32 backward, causal", 1.5,
        peers(INTEL_2, "backward"), peer_ratios("torch", dtype="float32", causal=True)),
    Bar("PyTorch on 2 threads with AVX-512, bf16 backward", 1.5, peers(INTEL_2, "backward"),
        peer_ratios("torch", dtype="bfloat16")),
    Bar("PyTorch on 2 threads with AVX-512, decode, G = 4", 2, peers(INTEL_2, "decode"),
        peer_ratios("torch")),
    Bar("ONNX Runtime on 2 threads with AVX-512, fp32 forward, full", 1.5,
        peers(INTEL_2, "forward"), peer_ratios("onnxruntime", causal=False)),
    Bar("ONNX Runtime on 2 threads with AVX-512, fp32 forward, causal", 1.5,
        peers(INTEL_2, "forward"), peer_ratios("onnxruntime", causal=True)),
    Bar("ONNX Runtime on 2 threads with AVX-512, fp32 decode, G = 4", 1.5,
        peers(INTEL_2, "decode"), peer_ratios("onnxruntime")),
    Bar("PyTorch on 16 threads with AMX, bf16 forward, G = 4", 1, peers(INTEL, "forward"),
        peer_ratios("torch", dtype="bfloat16", kv_heads=2)),
    Bar("PyTorch on 16 threads with AMX, bf16 forward, 8 heads", 1,
        f"{INTEL}/cpu-peers-forward-63cb393.json",
        peer_ratios("torch", dtype="bfloat16", kv_heads=8)),
    Bar("PyTorch on 16 threads, fp32 decode, G = 4", 2, peers(INTEL, "decode"),
        peer_ratios("torch")),
    Bar("ONNX Runtime on 16 threads, fp32 decode, G = 4", 1.5, peers(INTEL, "decode"),
        peer_ratios("onnxruntime")),
    Bar("ONNX Runtime on 16 threads, fp32 forward", 1.5, f"{INTEL}/cpu-peers-forward-63cb393.json",
        peer_ratios("onnxruntime")),
]


def bar_line(bar, values):
    reached = sum(value >= bar.limit for value in values)
    if not values:
        span = "not measured"
    elif len(values) == 1:
        span = f"{values[0]:.2f}"
    else:
        span = f"{min(values):.2f} to {max(values):.2f}"
    verdict = "yes" if values and reached == len(values) else f"{reached} of {len(values)}"
    return (f"| {bar.what} | {bar.limit:.2f} | {span} | {verdict} | "
            f"[{bar.file}](results/{bar.file}) |\n")


def bars_text(folder):
    """A line for every bar, of the files in folder; "reached" counts cases."""
    lines = ["| bar | least | measured | reached | file |\n", "|---|---|---|---|---|\n"]
    for bar in BARS:
        path = folder / bar.file
        report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        lines.append(bar_line(bar, bar.values(report) if report is not None else []))
    return "".join(lines)


def self_test():
    """What a line says of made-up values."""
    ratios = peer_ratios("torch", causal=True, length=lambda n: n > 9)
    bar = Bar("some bar", 1.5, "a/b.json", ratios)
    case = {"causal": True, "length": 10, "ratio": {"heed": 1.0, "torch": 1.6}}
    cases = [case, {**case, "ratio": {"torch": 1.25}}, {**case, "length": 9},
             {**case, "causal": False}, {**case, "ratio": {"numpy": 9.0}}]
    found = bar_line(bar, bar.values({"cases": cases}))
    expected = "| some bar | 1.50 | 1.25 to 1.60 | 1 of 2 | [a/b.json](results/a/b.json) |\n"
    roofs = [{"name": "r", "fraction": {"median": 0.5}}]
    row = {"case": "x", "bar": {"value": 2.0}, "roofs": roofs}
    rows = {"rows": [row, {**row, "case": "y"}]}
    return (found == expected and bench_rows("x")(rows) == [2.0] and
            bench_rows("x", roof="r")(rows) == [0.5] and
            bar_line(bar, [1.5]).split("|")[3:5] == [" 1.50 ", " yes "])

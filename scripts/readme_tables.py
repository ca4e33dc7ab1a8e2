#!/usr/bin/env python3
"""Writes the results tables of README.md, and that of the CPU bars in bench/README.md, from
bench/results/<machine>/*.json.

Those files are what `heed bench --json`, bench/compare_gpu.py and bench/compare_cpu.py wrote; every
cell comes from them.
Usage: readme_tables.py [--check | --self-test]
  --check   changes nothing; fails when either is not what the files give
"""

import json
import pathlib
import re
import sys

from cpu_bars import bars_text, self_test as bars_self_test

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_RESULTS = "No results are committed yet; `./dev bench` measures this machine.\n"


def duration_text(seconds):
    """Three significant digits in s, ms or us."""
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


def problem_text(row):
    problem, case = row["problem"], row.get("case", "").split(".")
    # heed bench names int8 cases i8.MODE...., MODE being how P V is computed.
    inputs = f"int8 ({case[1]})" if case[0] == "i8" else problem["dtype"]
    mask = "causal" if problem["causal"] else "full"
    heads = f"{problem['num_q_heads']}/{problem['num_kv_heads']} heads"
    if case[0] == "decode":
        # heed bench names decode cases decode[.kv8].DTYPE....[.bhsd].tN.
        cache = "int8" if "kv8" in case else problem["dtype"]
        order = "[B, H, S, D]" if "bhsd" in case else "[B, S, H, D]"
        return (f"decode {problem['dtype']}, {heads}, {problem['kv_len']} keys of {cache} {order}, "
                f"D = {problem['head_dim']}, {problem['threads']} threads")
    return (f"{inputs} {mask}, {heads}, L = {problem['q_len']}, "
            f"D = {problem['head_dim']}, {problem['threads']} threads")


def roof_text(row):
    """Of the mixed roof of an int8 call and of reading for decode where there is one. The last
    mixed one is the fastest instructions'; a row of vectors that was forced has its own before
    it."""
    roofs = row["roofs"]
    if not roofs:
        return ""
    special = [roof for roof in roofs if roof["name"].startswith(("mixed", "read"))] or roofs[:1]
    roof = special[0 if ".avx512bf16." in row["kernel"] else -1]
    return f"{100 * roof['fraction']['median']:.0f} % of {roof['name']}"


def row_text(row):
    cells = [problem_text(row), f"`{row['kernel']}`",
             duration_text(row["seconds"]["median"]), f"{row['tflops']:.3g}",
             roof_text(row)]
    return "| " + " | ".join(cells) + " |\n"


def gpu_text(name, report):
    """One caption and one table for a file of bench/compare_gpu.py: a row per kind of problem, a
    column per length, TFLOP/s and in brackets the ratio to the first peer."""
    kinds, lengths = {}, []
    for case in report["cases"]:
        mask = "causal" if case["causal"] else "full"
        kind = f"{case['op']} {case['dtype']} D = {case['head_dim']} {mask}"
        peer = next(peer for peer in case["ratio"] if peer != "heed")
        cell = f"{case['tflops']['heed']:.0f} ({case['ratio'][peer]:.2f} x {peer})"
        kinds.setdefault(kind, {})[case["length"]] = cell
        if case["length"] not in lengths:
            lengths.append(case["length"])
    lengths.sort()
    head = "".join(f" {length} |" for length in lengths)
    lines = [f"{report['card']}, heed at {report['commit']}; PyTorch {report['torch']}, "
             f"8192^3 bf16 product {report['matmul_tflops']:.0f} TFLOP/s; TFLOP/s (ratio to the "
             f"peer) by length: [{name}](bench/results/{name})\n\n",
             f"| case |{head}\n", "|---|" + "---|" * len(lengths) + "\n"]
    for kind, cells in kinds.items():
        row = "".join(f" {cells.get(length, '')} |" for length in lengths)
        lines.append(f"| {kind} |{row}\n")
    return "".join(lines)


def decode_text(name, report):
    """One caption and one table for decode cases of bench/compare_gpu.py: a row per cache."""
    lines = [f"{report['card']}, heed at {report['commit']}; PyTorch {report['torch']}; time of a "
             f"step and ratio to the first peer: [{name}](bench/results/{name})\n\n",
             "| Hq/Hkv/D, batch, cache | time | read | ratio |\n", "|---|---|---|---|\n"]
    for case in report["cases"]:
        peer = next(peer for peer in case["ratio"] if peer != "heed")
        lines.append(f"| {case['case']} | {case['us']['heed']:.1f} us | "
                     f"{case['gb_per_s']['heed']:.0f} GB/s | "
                     f"{case['ratio'][peer]:.2f} x {peer} |\n")
    return "".join(lines)


def cpu_text(name, report):
    """One caption and one table for a file of bench/compare_cpu.py: a row per kind of problem, a
    column per length, the time and how many times longer each peer takes."""
    kinds, lengths = {}, sorted({case["length"] for case in report["cases"]})
    for case in report["cases"]:
        mask = "causal" if case["causal"] else "full"
        kind = (f"{case['op']} {case['dtype']} {case['heads']}/{case['kv_heads']} heads "
                f"D = {case['head_dim']} {mask}")
        peers = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in case["ratio"].items()
                          if peer != "heed")
        kinds.setdefault(kind, {})[case["length"]] = (
            f"{duration_text(case['seconds']['heed'])} ({peers})")
    peers = ", ".join(f"{peer} {report[peer]}" for peer in ("torch", "onnxruntime", "numpy")
                      if report[peer])
    plot = pathlib.PurePosixPath("bench/results", name).with_suffix(".svg")
    plot_text = f", [plot]({plot})" if (ROOT / plot).exists() else ""
    lines = [f"{report['cpu']}, {report['threads']} threads, heed at {report['commit']}; {peers}; "
             f"time (times as long: peer) by length: [{name}](bench/results/{name}){plot_text}\n\n",
             "| case |" + "".join(f" {length} |" for length in lengths) + "\n",
             "|---|" + "---|" * len(lengths) + "\n"]
    for kind, cells in kinds.items():
        lines.append(f"| {kind} |" + "".join(f" {cells.get(n, '')} |" for n in lengths) + "\n")
    return "".join(lines)


def report_text(name, report):
    """One caption and one table for one file."""
    if "cpu" in report:
        return cpu_text(name, report)
    if "cases" in report:
        is_decode = report["cases"][0]["op"] == "decode"
        return decode_text(name, report) if is_decode else gpu_text(name, report)
    lines = [f"{report['library']['cpu']['model']}, heed {report['heed']}: "
             f"[{name}](bench/results/{name})\n\n",
             "| problem | kernel | median time | TFLOP/s | share of the roof |\n",
             "|---|---|---|---|---|\n"]
    return "".join(lines + [row_text(row) for row in report["rows"]])


def results_text(folder):
    files = sorted(folder.glob("*/*.json")) if folder.is_dir() else []
    texts = [report_text(path.relative_to(folder).as_posix(),
                         json.loads(path.read_text(encoding="utf-8"))) for path in files]
    return "\n".join(texts) if texts else NO_RESULTS


def with_block(text, name, content):
    """The text with its block of that name replaced; there must be exactly one."""
    block = re.compile(f"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if len(block.findall(text)) != 1:
        raise ValueError(f"needs one {name}:begin / {name}:end block")
    return block.sub(lambda match: match.group(1) + content + match.group(2), text)


def self_test():
    """A made-up report must give its table, and a README that differs must be noticed."""
    problem = {"dtype": "f32", "causal": True, "num_q_heads": 8, "num_kv_heads": 2, "q_len": 4096,
               "head_dim": 64, "threads": 2}
    row = {"problem": problem, "kernel": "some.row", "seconds": {"median": 0.0125},
           "tflops": 0.123456, "roofs": [{"name": "FMA", "fraction": {"median": 0.874}}]}
    report = {"heed": "0.1.0", "library": {"cpu": {"model": "Some CPU"}}, "rows": [row]}
    results = report_text("some/file.json", report)
    case = {"op": "forward", "dtype": "bfloat16", "head_dim": 64, "causal": False, "length": 1024,
            "tflops": {"heed": 340.4, "flash": 284.0}, "ratio": {"heed": 1.0, "flash": 1.1986}}
    gpu = report_text("gpu.json", {"card": "Some GPU", "commit": "abc", "torch": "2.11",
                                   "matmul_tflops": 687.0, "cases": [case]})
    if "| forward bfloat16 D = 64 full | 340 (1.20 x flash) |\n" not in gpu:
        print(f"self-test: unexpected GPU table:\n{gpu}", file=sys.stderr)
        return 1
    decode = report_text("d.json", {"card": "Some GPU", "commit": "abc", "torch": "2.11", "cases": [
        {"op": "decode", "case": "decode 8/2/64 B1 S1024", "us": {"heed": 9.85, "cudnn": 5.5},
         "gb_per_s": {"heed": 53.2}, "ratio": {"heed": 1.0, "cudnn": 0.554}}]})
    if "| decode 8/2/64 B1 S1024 | 9.8 us | 53 GB/s | 0.55 x cudnn |\n" not in decode:
        print(f"self-test: unexpected decode table:\n{decode}", file=sys.stderr)
        return 1
    case |= {"heads": 8, "kv_heads": 2, "seconds": {"heed": 0.002, "torch": 0.003},
             "ratio": {"heed": 1.0, "torch": 1.5}}
    cpu = report_text("cpu.json", {"cpu": "Some CPU", "threads": 2, "commit": "abc",
                                   "torch": "2.11", "onnxruntime": None, "numpy": "2.0",
                                   "cases": [case]})
    if "| forward bfloat16 8/2 heads D = 64 full | 2 ms (torch 1.50) |\n" not in cpu:
        print(f"self-test: unexpected CPU table:\n{cpu}", file=sys.stderr)
        return 1
    expected = ("| f32 causal, 8/2 heads, L = 4096, D = 64, 2 threads | `some.row` | 12.5 ms | "
                "0.123 | 87 % of FMA |\n")
    stale = "a\n<!-- results:begin -->\nold\n<!-- results:end -->\nb\n"
    fresh = with_block(stale, "results", results)
    if (expected not in fresh or "old" in fresh or
            with_block(fresh, "results", results) != fresh):
        print(f"self-test: unexpected table:\n{fresh}", file=sys.stderr)
        return 1
    if not bars_self_test():
        print("self-test: unexpected line of a bar", file=sys.stderr)
        return 1
    print("self-test: the table is as expected")
    return 0


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    folder = ROOT / "bench/results"
    is_stale = False
    for file, name, content in (("README.md", "results", results_text(folder)),
                                ("bench/README.md", "bars", bars_text(folder))):
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        fresh = with_block(text, name, content)
        if "--check" not in arguments:
            path.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            print(f"{file}: {name} differ from bench/results: run scripts/readme_tables.py",
                  file=sys.stderr)
            is_stale = True
    return 1 if is_stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

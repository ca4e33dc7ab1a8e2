#!/usr/bin/env python3
"""One table from two calls of bench/compare_gpu.py: a bar holds only when both calls reach it.

    python bench/gpu/merge.py run1.json run2.json [--gate]
"""

import argparse
import json
import sys


def main_peer(case):
    """The peer that the case is judged by, else the first one."""
    if case.get("bar"):
        return case["bar"]["peer"]
    return next((peer for peer in case["ratio"] if peer != "heed"), None)


def merge(first, second):
    """Rows {case, peer, tflops, ratios, percent, bar, holds}; holds is None without a bar.

    Cases of one call only are left out, so both calls have to be of one preset.
    """
    if first["card"] != second["card"]:
        raise ValueError(f"two cards: {first['card']} and {second['card']}")
    others = {case["case"]: case for case in second["cases"]}
    rows = []
    for case in first["cases"]:
        other = others.get(case["case"])
        peer = main_peer(case)
        if other is None or peer not in other["ratio"]:
            continue
        both = (case, other)
        bar = case["bar"]["ratio"] if case.get("bar") else None
        ratios = [one["ratio"][peer] for one in both]
        matmul = [first["matmul_tflops"], second["matmul_tflops"]]
        rows.append({
            "case": case["case"], "peer": peer, "kernel": case["kernel"],
            "tflops": [one["tflops"]["heed"] for one in both], "ratios": ratios,
            "percent": [100 * one["tflops"]["heed"] / rate for one, rate in zip(both, matmul)],
            "bar": bar, "holds": None if bar is None else min(ratios) >= bar})
    latencies = [record["latency"] for record in (first, second) if record.get("latency")]
    if len(latencies) == 2:
        ratios = [latency["ratio"] for latency in latencies]
        rows.append({"case": latencies[0]["case"], "peer": latencies[0]["best_peer"],
                     "kernel": latencies[0]["kernel"], "tflops": None, "percent": None,
                     "ratios": ratios, "bar": 1.0, "holds": min(ratios) >= 1.0})
    return rows


def pair_text(pair, digits):
    return "-" if pair is None else " / ".join(f"{value:.{digits}f}" for value in pair)


def table(rows):
    lines = ["| case | TFLOP/s | % of matmul | ratio to peer | bar | |",
             "|---|---|---|---|---|---|"]
    words = {None: "", True: "holds", False: "MISSED"}
    for row in rows:
        bar = "" if row["bar"] is None else f"{row['bar']:.2f}"
        lines.append(f"| {row['case']} | {pair_text(row['tflops'], 0)} | "
                     f"{pair_text(row['percent'], 0)} | {pair_text(row['ratios'], 3)} "
                     f"{row['peer']} | {bar} | {words[row['holds']]} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--gate", action="store_true", help="fail when a bar does not hold")
    options = parser.parse_args()
    records = []
    for path in options.files:
        with open(path, encoding="utf-8") as file:
            records.append(json.load(file))
    try:
        rows = merge(*records)
    except ValueError as reason:
        sys.exit(f"merge: {reason}")
    print(table(rows))
    missed = [row["case"] for row in rows if row["holds"] is False]
    judged = [row for row in rows if row["holds"] is not None]
    print(f"\n{records[0]['card']}: {len(judged) - len(missed)} of {len(judged)} bars hold in both "
          f"calls, {len(rows) - len(judged)} cases have none")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Prints time, speed-up and memory of heed and of plain attention side by side.

Usage: table.py BENCH_JSON
"""

import pathlib
import sys

from measurements import bytes_text, duration_text, read_bench

COLUMNS = ("tokens", "heed time", "plain time", "speed-up", "heed memory", "plain memory")
WIDTHS = (7, 12, 12, 11, 14, 14)


def cells(point):
    """Texts of one row; a plain attention that did not run has no speed-up."""
    has_run = point.plain_seconds is not None
    return (
        str(point.length),
        duration_text(point.heed_seconds),
        duration_text(point.plain_seconds) if has_run else "not run",
        f"{point.speedup:.2f}x" if has_run else "-",
        bytes_text(point.heed_bytes),
        bytes_text(point.plain_bytes),
    )


def print_row(texts):
    print("".join(text.rjust(width) for text, width in zip(texts, WIDTHS)))


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    bench = read_bench(pathlib.Path(sys.argv[1]))
    print(f"{bench.problem}\n{bench.machine}\n")
    print_row(COLUMNS)
    for point in bench.points:
        print_row(cells(point))
    for point in bench.points:
        if point.why_not_run:
            print(f"\nplain attention at {point.length} tokens: {point.why_not_run}")
    print("\nMedian time of a call. Memory beyond inputs and outputs: heed's workspace and plain\n"
          "attention's score matrix.")


if __name__ == "__main__":
    main()

"""Draws time and memory of heed and of plain attention against the sequence length.

Usage: plot.py BENCH_JSON PICTURE
"""

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib import ticker

from measurements import bytes_text, duration_text, read_bench

HEED_STYLE = {"color": "#0b6e4f", "marker": "o", "label": "heed"}
PLAIN_STYLE = {"color": "#c8553d", "marker": "s", "label": "plain attention (scores in memory)"}


def label_axes(axes, lengths, title, y_label):
    """Titles, units and a logarithmic length axis with a tick at each measured length."""
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_ylabel(y_label)
    axes.set_xlabel("sequence length (tokens)")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(ticker.FixedLocator(lengths))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_time(axes, points):
    """Time per call of both, and the speed-up above each pair of points."""
    lengths = [point.length for point in points]
    run = [point for point in points if point.plain_seconds is not None]
    axes.plot([p.length for p in run], [p.plain_seconds for p in run], **PLAIN_STYLE)
    axes.plot(lengths, [p.heed_seconds for p in points], **HEED_STYLE)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: duration_text(y)))
    label_axes(axes, lengths, "Time per call, and heed's speed-up", "median time (log scale)")
    for point in run:
        axes.annotate(f"{point.speedup:.1f}x", (point.length, point.plain_seconds),
                      xytext=(-4, 7), textcoords="offset points", ha="right", fontsize=9,
                      color=HEED_STYLE["color"], fontweight="bold")
    axes.margins(x=0.12, y=0.14)
    axes.legend(loc="upper left", frameon=False)


def draw_memory(axes, points):
    """Bytes beyond inputs and outputs; hollow marks where plain attention did not fit."""
    lengths = [point.length for point in points]
    not_run = [point for point in points if point.plain_seconds is None]
    axes.plot(lengths, [p.plain_bytes for p in points], **PLAIN_STYLE)
    if not_run:
        axes.plot([p.length for p in not_run], [p.plain_bytes for p in not_run],
                  linestyle="none", marker="s", markerfacecolor="white",
                  color=PLAIN_STYLE["color"], markersize=7, label="needed, not run")
    axes.plot(lengths, [p.heed_bytes for p in points], **HEED_STYLE)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: bytes_text(y)))
    label_axes(axes, lengths, "Extra memory", "beyond inputs and outputs (log scale)")
    for values, style, below in (("plain_bytes", PLAIN_STYLE, False),
                                 ("heed_bytes", HEED_STYLE, True)):
        last = points[-1]
        axes.annotate(bytes_text(getattr(last, values)), (last.length, getattr(last, values)),
                      xytext=(0, -15 if below else 8), textcoords="offset points", ha="center",
                      fontsize=9, color=style["color"])
    axes.margins(x=0.12, y=0.14)
    axes.legend(loc="upper left", frameon=False)


def draw(bench, picture):
    """Writes the picture (PNG) of one bench report."""
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(12, 5.6))
    draw_time(time_axes, bench.points)
    draw_memory(memory_axes, bench.points)
    figure.suptitle(bench.problem, x=0.02, ha="left", fontsize=14)
    figure.text(0.02, 0.02, f"{bench.machine}\n{bench.kernels}", fontsize=8.5, color="#444444")
    figure.tight_layout(rect=(0.01, 0.08, 0.99, 0.97))
    figure.savefig(picture, dpi=130)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    bench_file, picture = map(pathlib.Path, sys.argv[1:])
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(read_bench(bench_file), picture)


if __name__ == "__main__":
    main()

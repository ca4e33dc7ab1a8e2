"""The plot beside a JSON file of bench/compare_cpu.py, where matplotlib is installed."""

import json
import pathlib

COLOURS = {"torch": "tab:red", "onnxruntime": "tab:blue", "numpy": "tab:green"}


def panels(report):
    """{(dtype, head_dim): {(peer, kv_heads, causal): [(length, ratio)]}}"""
    grouped = {}
    for case in report["cases"]:
        lines = grouped.setdefault((case["dtype"], case["head_dim"]), {})
        for peer, ratio in case["ratio"].items():
            if peer != "heed":
                kind = (peer, case["kv_heads"], case["causal"])
                lines.setdefault(kind, []).append((case["length"], ratio))
    return grouped


def draw(json_path):
    """Writes the file with suffix .svg: how many times as long each peer takes, by length. Returns
    its path in a list, which is empty without matplotlib."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return []
    # Text as text and the same ids in every run: small files that change only with the numbers.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "heed"}
    path = pathlib.Path(json_path)
    report = json.loads(path.read_text())
    grouped = panels(report)
    dtypes = sorted({dtype for dtype, _ in grouped}, reverse=True)
    head_dims = sorted({head_dim for _, head_dim in grouped})
    op, heads = (report["cases"][0][name] for name in ("op", "heads"))
    figure, axes = pyplot.subplots(len(dtypes), len(head_dims), squeeze=False, sharex=True,
                                   figsize=(5.5 * len(head_dims), 3.4 * len(dtypes) + 0.5))
    for (dtype, head_dim), lines in grouped.items():
        axis = axes[dtypes.index(dtype)][head_dims.index(head_dim)]
        for (peer, kv_heads, causal), points in sorted(lines.items()):
            axis.plot(*zip(*sorted(points)), color=COLOURS[peer], markersize=4, linewidth=1.2,
                      marker="o" if kv_heads == heads else "^",
                      linestyle="--" if causal else "-",
                      label=f"{peer} {heads}/{kv_heads}{' causal' if causal else ''}")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_title(f"{dtype}, D = {head_dim}", fontsize="medium")
        axis.set_xlabel("keys" if op == "decode" else "length")
        axis.set_ylabel("time of the peer / of heed")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small", ncols=2)
    figure.suptitle(f"{op}, {report['cpu']}, {report['threads']} thread"
                    f"{'' if report['threads'] == 1 else 's'}: above 1 heed is faster")
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)
    return [path.with_suffix(".svg")]

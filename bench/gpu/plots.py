"""PNG files beside the JSON of bench/compare_gpu.py, where matplotlib is installed."""

import math
import pathlib


def panels(record):
    """{(op, dtype): {(head_dim, causal): {name: [(length, TFLOP/s)]}}}, of at least two lengths."""
    grouped = {}
    for case in record["cases"]:
        panel = grouped.setdefault((case["op"], case["dtype"]), {})
        lines = panel.setdefault((case["head_dim"], case["causal"]), {})
        for name, rate in case["tflops"].items():
            lines.setdefault(name, []).append((case["length"], rate))
    long_enough = lambda lines: any(len(points) > 1 for points in lines.values())
    return {kind: kept for kind, panel in grouped.items()
            if (kept := {key: lines for key, lines in panel.items() if long_enough(lines)})}


def draw(record, json_path):
    """Writes <json_path without suffix>-<op>-<dtype>.png; returns their paths, none without
    matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    paths = []
    for (op, dtype), panel in panels(record).items():
        columns = 2
        rows = math.ceil(len(panel) / columns)
        figure, axes = plt.subplots(rows, columns, figsize=(11, 3.6 * rows), squeeze=False)
        for axis, (key, lines) in zip(axes.flat, sorted(panel.items())):
            for name, points in lines.items():
                axis.plot(*zip(*sorted(points)), marker="o", label=name,
                          linewidth=2.5 if name == "heed" else 1.2)
            axis.axhline(record["matmul_tflops"], linestyle=":", color="grey", label="matmul")
            axis.set_xscale("log", base=2)
            axis.set_ylim(bottom=0)
            axis.set_title(f"D = {key[0]}, {'causal' if key[1] else 'full'}")
            axis.set_xlabel("length")
            axis.set_ylabel("TFLOP/s")
            axis.grid(alpha=0.3)
        for axis in list(axes.flat)[len(panel):]:
            axis.set_visible(False)
        axes.flat[0].legend(fontsize="small")
        figure.suptitle(f"{op} {dtype}, {record['card']}")
        figure.tight_layout()
        path = pathlib.Path(json_path).with_suffix("")
        path = path.with_name(f"{path.name}-{op}-{dtype}.png")
        figure.savefig(path, dpi=110)
        plt.close(figure)
        paths.append(path)
    return paths

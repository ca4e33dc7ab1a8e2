"""What `heed bench --materialized --json` wrote, as the table and the picture need it."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One length. Times are medians; bytes are those beyond inputs and outputs."""

    length: int
    heed_seconds: float
    heed_bytes: int  # workspace of the call
    plain_seconds: float | None  # None: plain attention did not run
    plain_bytes: int  # score matrix, needed whether it ran or not
    why_not_run: str  # "" when it ran

    @property
    def speedup(self):
        return self.plain_seconds / self.heed_seconds


@dataclass(frozen=True)
class Bench:
    """One report: what was measured, where, by which kernels, and the points by rising length."""

    problem: str
    machine: str
    kernels: str
    points: list[Point]


def duration_text(seconds):
    """Three significant digits in us, ms or s."""
    for unit, name in ((1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} us"


def bytes_text(num_bytes):
    """Three significant digits in the largest unit that leaves at least 1, powers of ten."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.3g} {name}"
    return f"{num_bytes:.3g} B"


def _point(row):
    plain = row["materialized"]
    return Point(
        length=row["problem"]["q_len"],
        heed_seconds=row["seconds"]["median"],
        heed_bytes=row["workspace_bytes"],
        plain_seconds=plain.get("seconds"),
        plain_bytes=int(plain["score_bytes"]),
        why_not_run=plain.get("not_run", ""),
    )


def _problem_text(problem):
    name = "Causal attention" if problem["causal"] else "Attention"
    heads = f"{problem['num_q_heads']} query heads, {problem['num_kv_heads']} key-value heads"
    dtype = problem["dtype"].replace("f", "fp", 1)
    return f"{name}, {dtype}, {heads}, head dim {problem['head_dim']}"


def read_bench(path):
    """Bench of a JSON report whose rows differ in length alone."""
    report = json.loads(path.read_text(encoding="utf-8"))
    rows = sorted(report["rows"], key=lambda row: row["problem"]["q_len"])
    problem = rows[0]["problem"]
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    plain_targets = {row["materialized"].get("target") for row in rows} - {None}
    return Bench(
        problem=_problem_text(problem),
        machine=f"{report['library']['cpu']['model']}, {problem['threads']} threads, "
        f"heed {report['heed']}",
        kernels=f"heed: {', '.join(kernels)}; plain: {', '.join(sorted(plain_targets))}",
        points=[_point(row) for row in rows],
    )

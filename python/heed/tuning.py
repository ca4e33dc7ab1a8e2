"""Measuring which kernel is fastest on this device, and what was stored of it."""

import ctypes as c
import json

from heed import abi
from heed.calls import flag, integer, real
from heed.library import check, load, read_text
from heed.operations import planned_call

_VERDICTS = ("default", "faster", "not faster", "far slower", "refused")


def tune(q, k, v, *, backward=False, return_lse=True, dry_run=False, num_rounds=0,
         slice_seconds=0.0, **options):
    """Measures every kernel that could run attention(q, k, v, **options), or its gradients, on
    arrays like these, and stores the fastest, which later calls of the same kind then run
    (docs/tune.md). One dict for each kernel, the default one first; seconds and ratio (of its time
    to the default kernel's) are None for a refused one, and reason says why it was."""
    op, args = planned_call("tune", q, k, v, backward, return_lse, options)
    rows = []

    def report(_, row):
        row = row[0]
        is_refused = _VERDICTS[row.verdict] == "refused"
        rows.append({"kernel": row.kernel_id.decode(), "verdict": _VERDICTS[row.verdict],
                     "is_chosen": bool(row.is_chosen),
                     "seconds": None if is_refused else row.seconds,
                     "ratio": None if is_refused else row.ratio,
                     "spread": None if is_refused else row.spread,
                     "reason": row.reason.decode()})

    tune_options = abi.TuneOptions(dry_run=flag("dry_run", dry_run),
                                   num_rounds=integer("num_rounds", num_rounds, 0, 2**31 - 1),
                                   slice_seconds=real("slice_seconds", slice_seconds),
                                   report=abi.TuneReport(report))
    check(load().heed_tune(op, c.byref(args), c.byref(tune_options)))
    return rows


def tuned():
    """Every stored choice of this user, as a list of dicts."""
    return json.loads(read_text(load().heed_tune_describe, abi.INFO_JSON))["choices"]


def clear_tuning():
    """Removes every stored choice. How many there were."""
    num_removed = c.c_int64()
    check(load().heed_tune_clear(c.byref(num_removed)))
    return num_removed.value

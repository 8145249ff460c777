"""The rows of a comparison: by part, stage, rank, family or kernel, in nanoseconds that sum to the step."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from stepscope.compare.columns import Line
from stepscope.compare.run import PARTS, UNSPLIT, By
from stepscope.compare.side import Side
from stepscope.compare.verdict import Step
from stepscope.errors import BadInput
from stepscope.intervals.arrays import F64, I64
from stepscope.model.result import blank
from stepscope.model.threshold import Threshold
from stepscope.statistics.changes import RUNS, Change, Design, mean_change, median_change, median_weights

#: Tables whose rows are many: the largest changes are shown, the others summed.
LONG = ("family", "kernel")
#: What sums over rows.
_Summed = Literal["base_ns", "new_ns", "diff_ns", "base_mean_ns", "new_mean_ns", "mean_diff_ns", "base_n", "new_n"]
_SUMS: tuple[_Summed, ...] = get_args(_Summed)


def rows_of(by: By, base: Side, new: Side, step: Step, design: Design) -> list[Line]:
    """One row per key, in order of the sides' own tables; integers that sum to the step."""
    table = "part" if by == "part" else by
    keys = list(dict.fromkeys([*base.keys(table), *new.keys(table)]))
    if by == "rank":
        keys.sort(key=int)
    (a, a_n, a_total), (b, b_n, b_total) = (side.samples(table, keys, design is RUNS) for side in (base, new))
    if by == "part":  # the parts are the keys
        kept = _parts(a, b)
        a, b, keys = a.transpose(0, 2, 1)[:, kept], b.transpose(0, 2, 1)[:, kept], [PARTS[k] for k in kept]
        a_n = b_n = np.zeros((1, len(keys)))
    lengths = [side.sum(axis=2) for side in (a, b)]
    count = a.shape[2]
    split = [median_weights(total) @ side.reshape(len(side), -1) for side, total in ((a, a_total), (b, b_total))]
    change = median_change(lengths[0], lengths[1], a_total, b_total, design, len(keys))
    means = _means(by, table, base, new, design)
    wholes = (step.base_mean_ns, step.new_mean_ns)
    averages = [
        np.round(values).astype(np.int64) if by == "rank" else _exact(values, whole)
        for values, whole in zip((means.base, means.new), wholes, strict=True)
    ]
    if by == "rank":
        whole_ns = [[round(float(v)) for v in side.reshape(-1, count).sum(axis=1)] for side in split]
        exact = [
            np.array([_exact(row, total) for row, total in zip(side.reshape(-1, count), totals, strict=True)])
            for side, totals in zip(split, whole_ns, strict=True)
        ]
    else:
        exact = [
            _exact(side, total).reshape(-1, count)
            for side, total in zip(split, (step.base_ns, step.new_ns), strict=True)
        ]
    table_rows = [_row(by, key, i, exact, change, (a_n, b_n), step, base, new) for i, key in enumerate(keys)]
    for i, row in enumerate(table_rows):
        _add_means(
            row, [int(values[i]) for values in averages], _ends(means, i, int(averages[0][i])), bool(step.uneven)
        )
    return table_rows


def _parts(base: F64, new: F64) -> list[int]:
    """The parts that steps were split into; where only the host was recorded, they are whole."""
    host = base[..., UNSPLIT].any() or new[..., UNSPLIT].any()
    return [k for k in range(len(PARTS)) if (k == UNSPLIT) == host]


def _means(by: By, table: str, base: Side, new: Side, design: Design) -> Change:
    """The change of the mean step's rows."""
    keys = list(dict.fromkeys([*base.keys(table), *new.keys(table)]))
    if by == "rank":
        keys.sort(key=int)
    (a, _, a_total), (b, _, b_total) = (side.samples(table, keys, design is RUNS, mean=True) for side in (base, new))
    kept = _parts(a, b)
    a, b = (side.sum(axis=1)[:, kept] if by == "part" else side.sum(axis=2) for side in (a, b))
    return mean_change(a, b, a_total, b_total, design, a.shape[1])


def _ends(change: Change, i: int, base: int) -> tuple[int | None, int | None]:
    """The interval of a row, in whole nanoseconds; it ends where nothing is left."""
    low, high = (None if v is None else round(float(v[i])) for v in (change.low, change.high))
    return None if low is None else max(low, -base), high


def _add_means(row: Line, means: list[int], ends: tuple[int | None, int | None], judged: bool) -> None:
    """The means beside the medians; where steps are judged by means, so are rows."""
    row |= {
        "base_mean_ns": means[0],
        "new_mean_ns": means[1],
        "mean_diff_ns": means[1] - means[0],
        "mean_low_ns": ends[0],
        "mean_high_ns": ends[1],
    }
    if judged and row["verdict"] not in ("new", "gone"):
        row["verdict"] = _word(means[0], means[1], *ends)


def _row(
    by: By,
    key: str,
    i: int,
    exact: list[I64],
    change: Change,
    counts: tuple[F64, F64],
    step: Step,
    base: Side,
    new: Side,
) -> Line:
    before, after = (int(side[i].sum()) for side in exact)
    low, high = _ends(change, i, before)
    there = [bool(side[:, i].any()) for side in counts]
    came = ("new" if there[1] else "gone") if by in LONG and there[0] != there[1] else None
    n = [float(np.median(side[:, i])) for side in counts]
    line: Line = {
        **blank(Line),
        "key": int(key) if by == "rank" else key,
        "base_ns": before,
        "new_ns": after,
        "diff_ns": after - before,
        "change_pct": 100.0 * (after - before) / before if before else None,
        "step_pct": 100.0 * (after - before) / step.base_ns if step.base_ns else None,
        "low_ns": low,
        "high_ns": high,
        "verdict": came or _word(before, after, low, high),
    }
    if by in ("stage", "rank"):
        compute, comm, copies, idle = (exact[1][i, :UNSPLIT] - exact[0][i, :UNSPLIT]).tolist()
        line |= {"compute_diff_ns": compute, "comm_diff_ns": comm, "copy_diff_ns": copies, "idle_diff_ns": idle}
    if by in LONG:
        line |= {"base_n": n[0], "new_n": n[1]}
    if by == "kernel":
        line["family"] = next((f for s in (base, new) for r in s.runs if (f := r.families.get(key))), None)
    return line


_TOLD = Threshold(
    0.05,
    "% of its row",
    "a change that prints as 0.0 % is none, however steady it is: clocks of GPUs tick in tens of nanoseconds",
    ("tests/compare/test_compare_command.py",),
)


def _word(before: int, after: int, low: int | None, high: int | None) -> str | None:
    """What became of a row; null where the samples are too few to say."""
    if low is None or high is None or before == after == 0:
        return None
    if (low > 0 or high < 0) and abs(after - before) >= _TOLD.share * before:
        return "longer" if after > before else "shorter"
    return "within noise"


def _exact(values: F64, total: int) -> I64:
    """Whole nanoseconds that sum to `total`: what rounding loses goes to the largest remainders."""
    down = np.floor(values).astype(np.int64)
    missing = total - int(down.sum())
    order = np.argsort(-(values - down), kind="stable")
    if 0 < missing <= len(order):
        down[order[:missing]] += 1
    elif missing:  # only where sums of floats themselves are off by a nanosecond
        down[int(np.argmax(values))] += missing
    return down


def cut(table: list[Line], top: int) -> list[Line]:
    """The largest changes first; the others as one row, so that the rows still sum to the step."""
    if top < 0:
        raise BadInput(f"--top {top}", "give how many rows to show; 0 for all")
    ordered = sorted(table, key=lambda r: (-abs(r["diff_ns"]), r["key"]))
    if not top or len(ordered) <= top:
        return ordered
    kept, rest = ordered[:top], ordered[top:]
    others: Line = {**blank(Line), "key": f"({len(rest)} others)"}
    for column in _SUMS:
        others[column] = sum(r[column] or 0 for r in rest)
    steps = [r["step_pct"] for r in rest if r["step_pct"] is not None]
    others["step_pct"] = sum(steps)
    others["change_pct"] = 100.0 * others["diff_ns"] / others["base_ns"] if others["base_ns"] else None
    return [*kept, others]

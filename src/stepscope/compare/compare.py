"""The comparison itself: two sides in, a result out. Differences of the sides, then the step's in parts."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from stepscope.compare import facts as about
from stepscope.compare.columns import VARIANTS
from stepscope.compare.facts import Difference
from stepscope.compare.run import IDLE, PARTS, By
from stepscope.compare.side import Side
from stepscope.compare.verdict import Step, statement, verdict
from stepscope.derive.rank.data import NO_STAGE
from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals.arrays import F64, I64
from stepscope.model.note import Note
from stepscope.model.result import Result, rows
from stepscope.statistics import PAIRS, RUNS, STEPS, Design, MedianChange, median_change, median_weights

MARGIN_PCT = 3.0
TOP = 20
#: Tables whose rows are many: the largest changes are shown, the others summed.
_LONG = ("family", "kernel")


def compare(base: Side, new: Side, *, by: By = "part", margin: float = MARGIN_PCT, top: int = TOP) -> Result:
    """Rows by `by`, and the verdict on the step; deltas sum to the step's, to the nanosecond."""
    if by not in VARIANTS:
        raise BadInput(f"--by {by!r} is not a choice", f"give one of {', '.join(VARIANTS)}")
    if not 0 < margin < 100:
        raise BadInput(f"--margin {margin:g}: not a share", "give a percentage above 0, such as 3")
    _same_window(base, new)
    if by == "stage":
        _both_have_stages(base, new)
    base, new, design = matched(base, new)
    step = step_change(base, new, design)
    differ = about.differences(base.facts, new.facts, (base.manifest, new.manifest))
    said = verdict(step, margin)
    parts = _rows("part", base, new, step, design)
    table = parts if by == "part" else _rows(by, base, new, step, design)
    if by in _LONG:
        table = _cut(by, table, top)
    summary: dict[str, Any] = {
        "verdict": said,
        "step": step.summary(),
        **_kernels(base, new, step, design),
        **({"differs": [_shown(d) for d in differ]} if differ else {}),
        "statement": statement(said, step, parts, differ, about.condition(new.facts), margin),
    }
    result = Result(rows(VARIANTS[by], table), _windows(base, new), summary)
    result.notes = _notes(base, new, step, differ, design)
    result.command = "compare"
    result.sources = [*base.sources, *new.sources]
    result.ranks = len(new.ranks)
    return result


def matched(base: Side, new: Side) -> tuple[Side, Side, Design]:
    """What a sample is. Chunks are each other work: those that both sides have are compared, pair by pair."""
    if max(len(base.runs), len(new.runs)) > 1:
        return base, new, RUNS
    if base.runs[0].kind != "chunk":
        return base, new, STEPS
    shared = [t for t in base.runs[0].labels if t in set(new.runs[0].labels)]
    if not shared:
        raise CannotAnswer("the sides have no chunk in common", "give --anchor REGEX that both have, or --whole")
    sides = [replace(side, runs=[side.runs[0].only(shared)]) for side in (base, new)]
    return sides[0], sides[1], PAIRS


def step_change(base: Side, new: Side, design: Design) -> Step:
    """The change of the whole step, with its interval."""
    totals = [side.samples("part", ["step"], design is RUNS)[2] for side in (base, new)]
    change = median_change(totals[0][:, None], totals[1][:, None], totals[0], totals[1], design)
    low, high = (None if v is None else float(v[0]) for v in (change.low, change.high))
    kind = base.runs[0].kind
    unit = "run" if design is RUNS else "capture" if kind == "whole" else kind
    return Step(
        round(float(change.base[0])), round(float(change.new[0])), low, high, len(totals[0]), len(totals[1]), unit
    )


def _rows(by: By, base: Side, new: Side, step: Step, design: Design) -> list[dict[str, Any]]:
    """One row per key, in order of the sides' own tables; integers that sum to the step."""
    table = "part" if by == "part" else by
    keys = list(dict.fromkeys([*base.keys(table), *new.keys(table)]))
    if by == "rank":
        keys.sort(key=int)
    (a, a_n, a_total), (b, b_n, b_total) = (side.samples(table, keys, design is RUNS) for side in (base, new))
    if by == "part":  # the parts are the keys
        a, b, keys = a.transpose(0, 2, 1), b.transpose(0, 2, 1), list(PARTS)
        a_n = b_n = np.zeros((1, len(keys)))
    lengths = [side.sum(axis=2) for side in (a, b)]
    change = median_change(lengths[0], lengths[1], a_total, b_total, design, len(keys))
    count = a.shape[2]
    split = [median_weights(total) @ side.reshape(len(side), -1) for side, total in ((a, a_total), (b, b_total))]
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
    return [_row(by, key, i, exact, change, (a_n, b_n), step, base, new) for i, key in enumerate(keys)]


def _row(
    by: By,
    key: str,
    i: int,
    exact: list[I64],
    change: MedianChange,
    counts: tuple[F64, F64],
    step: Step,
    base: Side,
    new: Side,
) -> dict[str, Any]:
    before, after = (int(side[i].sum()) for side in exact)
    low, high = (None if v is None else round(float(v[i])) for v in (change.low, change.high))
    n = [float(np.median(side[:, i])) for side in counts]
    row: dict[str, Any] = {
        ("name" if by == "kernel" else by): int(key) if by == "rank" else key,
        "base_ns": before,
        "new_ns": after,
        "diff_ns": after - before,
        "change_pct": 100.0 * (after - before) / before if before else None,
        "step_pct": 100.0 * (after - before) / step.base_ns if step.base_ns else None,
        "low_ns": low,
        "high_ns": high,
        "verdict": _word(before, after, low, high, [bool(side[:, i].any()) for side in counts], by),
    }
    if by in ("stage", "rank"):
        row |= {f"{p.partition('_')[0]}_diff_ns": int(exact[1][i, k] - exact[0][i, k]) for k, p in enumerate(PARTS)}
    if by in _LONG:
        row |= {"base_n": n[0], "new_n": n[1]}
    if by == "kernel":
        row["family"] = next((f for s in (base, new) for r in s.runs if (f := r.families.get(key))), None)
    return row


def _word(before: int, after: int, low: int | None, high: int | None, there: list[bool], by: str) -> str | None:
    """What became of a row; null where the samples are too few to say."""
    if by in _LONG and there[0] != there[1]:
        return "new" if there[1] else "gone"
    if low is None or high is None or before == after == 0:
        return None
    if low > 0 or high < 0:
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


def _cut(by: str, table: list[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """The largest changes first; the others as one row, so that the rows still sum to the step."""
    if top < 0:
        raise BadInput(f"--top {top}", "give how many rows to show; 0 for all")
    ordered = sorted(table, key=lambda r: (-abs(r["diff_ns"]), r["name" if by == "kernel" else by]))
    if not top or len(ordered) <= top:
        return ordered
    kept, rest = ordered[:top], ordered[top:]
    sums = {c: sum(r[c] for r in rest) for c in ("base_ns", "new_ns", "diff_ns", "base_n", "new_n")}
    steps = [r["step_pct"] for r in rest if r["step_pct"] is not None]
    others: dict[str, Any] = dict.fromkeys(table[0])
    others |= {("name" if by == "kernel" else by): f"({len(rest)} others)", **sums, "step_pct": sum(steps)}
    others["change_pct"] = 100.0 * sums["diff_ns"] / sums["base_ns"] if sums["base_ns"] else None
    return [*kept, others]


def _kernels(base: Side, new: Side, step: Step, design: Design) -> dict[str, Any]:
    """How many kernels are new, gone and changed, where both sides were measured kernel by kernel."""
    if any("kernel" not in run.tables for side in (base, new) for run in side.runs):
        return {}
    words = [r["verdict"] for r in _rows("kernel", base, new, step, design) if r["name"] != IDLE]
    return {"kernels": {w: words.count(w) for w in ("new", "gone", "longer", "shorter")}}


def _same_window(base: Side, new: Side) -> None:
    kinds = [s.runs[0].kind for s in (base, new)]
    if any(r.kind != s.runs[0].kind for s in (base, new) for r in s.runs):
        raise CannotAnswer("the runs of a side do not mark steps alike", "give --anchor REGEX, or --whole")
    if kinds[0] != kinds[1]:
        names = {"whole": "no steps", "step": "steps", "chunk": "chunks"}
        raise CannotAnswer(
            f"base has {names[kinds[0]]}, new has {names[kinds[1]]}: not the same window",
            "give --anchor REGEX that both have, or --whole",
        )


def _both_have_stages(base: Side, new: Side) -> None:
    without = [name for name, side in (("base", base), ("new", new)) if side.keys("stage") == [NO_STAGE]]
    if len(without) == 1:
        raise CannotAnswer(
            f"{without[0]} has no stage labels, the other side has: stages cannot be compared",
            "capture both with the trainer's NVTX labels; --by part and --by family do without",
        )


def _windows(base: Side, new: Side) -> list[dict[str, Any]]:
    rows = []
    for name, side in (("base", base), ("new", new)):
        for k, run in enumerate(side.runs):
            which = f"{name}, run {k + 1} of {len(side.runs)}" if len(side.runs) > 1 else name
            for w in run.window:
                count = f" ({w['steps']} {run.kind}{'s' * (w['steps'] != 1)})" if run.kind != "whole" else ""
                rows.append(
                    {"side": name, "run": k, **w, "label": f"{which}: {w['label']}{count}", "index": 0, "count": 1}
                )
    return rows


def _shown(d: Difference) -> dict[str, str]:
    shown = asdict(d)
    del shown["variable"]
    return shown


def _notes(base: Side, new: Side, step: Step, differ: list[Difference], design: Design) -> list[Note]:
    notes = [
        Note("runs-understood", f"{name}: {side.said}") for name, side in (("base", base), ("new", new)) if side.said
    ]
    variables = [d.what for d in differ if d.variable]
    if len(variables) > 1:
        notes.append(
            Note(
                "several-variables",
                f"{len(variables)} things differ ({', '.join(variables[:6])}{', …' * (len(variables) > 6)}): the "
                "change "
                "cannot be put down to one of them",
                severity="warning",
            )
        )
    if missing := about.unknown(base.facts, new.facts):
        notes.append(Note("one-side-says", f"only one side says: {', '.join(missing)}"))
    if base.ranks != new.ranks:
        notes.append(
            Note(
                "ranks-differ",
                f"ranks of the base: {len(base.ranks)}, of the new side: {len(new.ranks)}; a step is the mean of its "
                "own",
                severity="warning",
            )
        )
    if any(d.what == "format" for d in differ):
        notes.append(
            Note(
                "profilers-differ",
                "two profilers slow the host differently: idle time between them says little about the program",
                severity="warning",
            )
        )
    if step.low is not None and design is not RUNS:
        notes.append(
            Note(
                "one-run-each",
                f"the interval is of the {step.unit}s of one run each: another run may differ by more (give several "
                "runs)",
                severity="warning",
            )
        )
    lengths = [len(run.labels) for side in (base, new) for run in side.runs]
    if design is RUNS and 2 * min(lengths) < max(lengths):
        notes.append(
            Note(
                "runs-of-unequal-length",
                f"runs have {min(lengths)} to {max(lengths)} steps: the median of a short one is noisier than the "
                "interval "
                "says",
                severity="warning",
            )
        )
    if step.unit == "chunk":
        notes.append(
            Note(
                "samples-are-chunks",
                "the captures hold one step: samples are its chunks, each compared with the one of the same label",
            )
        )
    shared = [n for n in base.notes if n in new.notes]
    apart = [n.of(name) for name, side in (("base", base), ("new", new)) for n in side.notes if n not in shared]
    return [*notes, *dict.fromkeys([*shared, *apart])]

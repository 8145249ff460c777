"""How the step changed: by its median, or by its mean where steps of very different lengths recur."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepscope.compare.side import Side
from stepscope.compare.verdict import Step
from stepscope.errors import CannotAnswer
from stepscope.model.units import about
from stepscope.statistics.changes import PAIRS, RUNS, STEPS, Design, mean_change, median_change
from stepscope.statistics.recurring import period_of, uneven

#: Lengths of a period that a sentence still names.
_ALTERNATE, _MOST_NAMED = 2, 4


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
    """The change of the whole step, of its median and of its mean, with their intervals."""
    totals = [side.samples("part", ["step"], design is RUNS)[2] for side in (base, new)]
    change = median_change(totals[0][:, None], totals[1][:, None], totals[0], totals[1], design)
    low, high = (None if v is None else float(v[0]) for v in (change.low, change.high))
    kind = base.runs[0].kind
    unit = "run" if design is RUNS else "capture" if kind == "whole" else kind
    medians = round(float(change.base[0])), round(float(change.new[0]))
    sums = [side.samples("part", ["step"], design is RUNS, mean=True)[2] for side in (base, new)]
    means = mean_change(sums[0][:, None], sums[1][:, None], sums[0], sums[1], design)
    mean_low, mean_high = (None if v is None else float(v[0]) for v in (means.low, means.high))
    return Step(
        *medians,
        low,
        high,
        len(totals[0]),
        len(totals[1]),
        unit,
        round(float(means.base[0])),
        round(float(means.new[0])),
        mean_low,
        mean_high,
        "" if design is PAIRS else _unevenly(base) or _unevenly(new),
    )


def _unevenly(side: Side) -> str:
    """What to say of a side whose steps differ much: `steps alternate between 132 ms and 1.4 s`; else nothing."""
    for run in side.runs:
        total = run.step_ns
        if not uneven(total):
            continue
        lag = period_of(total)
        if lag == 1:
            low, high = np.quantile(total, [0.1, 0.9])
            return f"{run.kind}s differ from {about(float(low))} to {about(float(high))}"
        means = [float(total[k::lag].mean()) for k in range(lag)]
        lengths = [about(mean) for mean in (sorted(means) if lag == _ALTERNATE else means)]
        if lag == _ALTERNATE:
            return f"{run.kind}s alternate between {' and '.join(lengths)}"
        named = f": {', '.join(lengths)}" if lag <= _MOST_NAMED else ""
        return f"lengths of {run.kind}s recur every {lag}{named}"
    return ""

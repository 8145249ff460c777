"""What a difference is worth: intervals for medians and means (docs/decisions/0013-comparing-medians.md).

`compare`, `gate` and `pipeline --against` ask here. Everything is linear in the samples. The median of a side is a
weighted sum of its sorted samples; what the median sample is made of is a weighted sum of the parts of the middle half
of the samples, scaled to the median. So parts, stages and kernels sum to the median, and their intervals come from the
same draws as the step's.

Where steps of very different lengths recur (`uneven`) a median is one of them, or lies between two: there the mean is
what a job pays, and `mean_change` has its interval. No length is negative, so that no interval reaches below -100 %.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from stepscope.intervals.arrays import F64, I64
from stepscope.model.threshold import Threshold
from stepscope.statistics.recurring import averaged, period_of
from stepscope.statistics.student import FEWEST, LEVEL, half_of_student, half_of_welch, normal

_MOST_MEMORY = Threshold(
    90.0,
    "% of the step before",
    "steps that remember more of each other cannot be told from a drift",
    ("tests/test_statistics.py", "decision 0013"),
)
_DRAWS = 2000
#: Medians of very many samples need fewer draws: their spread is small, and smooth.
_FEWEST_DRAWS, _MOST_SAMPLES = 300, 6_000_000
_BLOCK = 1_000_000
_SEED = 20240229


class Change(Struct, frozen=True):
    """What both sides have, column by column, and the interval of the difference; no interval where none can be had."""

    base: F64
    new: F64
    low: F64 | None
    high: F64 | None

    @property
    def delta(self) -> F64:
        return self.new - self.base


class Design(Struct, frozen=True):
    """What samples are. Steps (or chunks) of one run, in order, may depend on each other; paired ones are the same work
    on both sides."""

    steps: bool = False
    paired: bool = False


RUNS, STEPS, PAIRS = Design(), Design(steps=True), Design(steps=True, paired=True)


def median_change(base: F64, new: F64, base_total: F64, new_total: F64, design: Design, rows: int = 1) -> Change:
    """The change of columns (samples x columns) whose sums over all parts are the totals.

    `rows` is how many intervals are shown together: they are widened so that all of them hold at once.
    """
    n, m = len(base), len(new)
    middle = median_weights(base_total) @ base, median_weights(new_total) @ new
    if n + m < 3 or (design.paired and n < 2):
        return Change(*middle, None, None)
    delta = middle[1] - middle[0]
    if min(n, m) < FEWEST.count:
        half = half_of_student([new - base] if design.paired else [base, new], rows)
        return Change(*middle, _possible(delta - half, middle[0]), delta + half)
    draws = [_draws(base, base_total, 0), _draws(new, new_total, 0 if design.paired else 1)]
    few = min(map(len, draws))
    off = (draws[1][:few] - middle[1]) - (draws[0][:few] - middle[0])
    tail = 50.0 * (1.0 - LEVEL.share)
    low, high = np.percentile(off, [tail, 100.0 - tail], axis=0)
    wider = np.full(base.shape[1], normal(LEVEL.share, rows) / normal(LEVEL.share, 1))
    if design.steps:
        wider *= np.sqrt(_memory([new - base] if design.paired else [base, new]))
    # Draws of medians are lumpy: an interval never leaves out the estimate itself.
    low, high = delta + np.minimum(low, 0.0) * wider, delta + np.maximum(high, 0.0) * wider
    return Change(*middle, _possible(low, middle[0]), high)


def mean_change(base: F64, new: F64, base_total: F64, new_total: F64, design: Design, rows: int = 1) -> Change:
    """The change of the means of columns (samples x columns), with Student's interval.

    Steps whose lengths recur (`period_of`) are averaged over whole periods first: which of them a run begins and ends
    with must not matter, and their difference is not noise.
    """
    lags = (period_of(base_total), period_of(new_total)) if design.steps and not design.paired else (1, 1)
    sides = [averaged(side, lag) for side, lag in zip((base, new), lags, strict=True)]
    middle = sides[0].mean(axis=0), sides[1].mean(axis=0)
    n, m = map(len, sides)
    delta = middle[1] - middle[0]
    if n + m < 3 or (design.paired and n < 2):
        return Change(*middle, None, None)
    if design.paired or min(n, m) < 2:
        half = half_of_student([sides[1] - sides[0]] if design.paired else sides, rows, of_means=True)
    else:
        half = half_of_welch(sides, rows)
    if design.steps:
        half = half * np.sqrt(_memory([sides[1] - sides[0]] if design.paired else sides))
    return Change(*middle, _possible(delta - half, middle[0]), delta + half)


def _possible(low: F64, base: F64) -> F64:
    """Nothing shrinks by more than all of it."""
    return np.maximum(low, -base)


def interval(base: F64, new: F64, design: Design) -> tuple[float, float] | None:
    """The interval of the difference of two medians, new less base; None where the samples are too few for one."""
    change = median_change(base[:, None], new[:, None], base, new, design)
    return None if change.low is None or change.high is None else (float(change.low[0]), float(change.high[0]))


def median_weights(total: F64) -> F64:
    """Weights of steps, by their lengths, that give the median step and what it is made of."""
    weights: F64 = _weights(total)[0]
    return weights


def _weights(total: F64, counts: I64 | None = None) -> F64:
    """Weights of the samples, one row per set of `counts`, under which columns give the parts of the median sample."""
    n = len(total)
    if counts is None:
        counts = np.ones((1, n), np.int64)
    order = np.argsort(total, kind="stable")
    upto = np.cumsum(counts[:, order], axis=1)
    before = upto - counts[:, order]
    median = _share(before, upto, math.ceil(n / 2) - 1, n // 2 + 1)
    half = _share(before, upto, n / 4, 3 * n / 4)
    level = half @ total[order]
    scale = np.divide(median @ total[order], level, out=np.ones(len(level)), where=level > 0)
    weights = np.empty_like(half)
    weights[:, order] = half * scale[:, None]
    return weights


def _share(before: I64, upto: I64, first: float, last: float) -> F64:
    """How much of the sorted places [first, last) each sample takes."""
    taken: F64 = np.maximum(np.minimum(upto, last) - np.maximum(before, first), 0.0) / (last - first)
    return taken


def _draws(columns: F64, total: F64, seed: int) -> F64:
    """The columns' parts of the median, over and over, each time of as many samples, drawn with replacement.

    The same seed draws the same samples of both sides: what pairs want.
    """
    n = len(total)
    random = np.random.default_rng([_SEED, seed])
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _MOST_SAMPLES // n))
    # Some draws at a time: the memory stays small however long the run is.
    block = max(1, min(draws, _BLOCK // n))
    drawn = []
    for first in range(0, draws, block):
        size = min(block, draws - first)
        place = random.integers(0, n, (size, n), dtype=np.int32) + np.arange(size)[:, None] * n
        counts = np.bincount(place.ravel(), minlength=size * n).reshape(size, n)
        drawn.append(_weights(total, counts) @ columns)
    return np.concatenate(drawn)


def _memory(sides: list[F64]) -> F64:
    """How much larger the variance of a column is for its steps depending on each other: (1 + r)/(1 - r), 1 at least.

    r is the correlation of neighbours, of all sides together, less the bias that it has in short series.
    """
    over = under = np.zeros(sides[0].shape[1])
    for side in sides:
        off = side - side.mean(axis=0)
        over = over + (off[1:] * off[:-1]).sum(axis=0)
        under = under + (off**2).sum(axis=0)
    r = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
    count = sum(map(len, sides)) / len(sides)
    r = np.clip(r + (1 + 3 * r) / count, 0.0, _MOST_MEMORY.share)
    factor: F64 = (1 + r) / (1 - r)
    return factor

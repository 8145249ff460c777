"""How wide an interval is: Student's and Welch's, of means and of medians of few samples."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from stepscope.intervals.arrays import F64
from stepscope.model.threshold import Threshold

LEVEL = Threshold(
    95.0,
    "% of the intervals",
    "hold the true difference: the usual level",
    ("tests/test_statistics.py", "decision 0013"),
)
RATE = Threshold(
    90.0,
    "% of the changes",
    "a change that is said to be seen is seen so often",
    ("tests/test_statistics.py", "decision 0013"),
)
FEWEST = Threshold(
    5,
    "samples on a side",
    "a bootstrap of medians draws from too few values below this: Student's interval instead",
    ("tests/test_statistics.py", "decision 0013"),
)
#: By the number of samples, the multiple of Student's half width, itself taken from so few samples of a normal
#: distribution, that is seen so often: simulated, as no table has it.
_SEEN = {2: 4.45, 3: 2.5, 4: 2.15}
#: Variance of the median over that of the mean, for samples of 1, 2, 3 and 4 from a normal distribution; then at most.
_MEDIAN_COST = (1.0, 1.0, 1.35, 1.19, math.pi / 2)


def half_of_student(sides: list[F64], rows: int, *, of_means: bool = False) -> F64:
    """Half of Student's interval, all sides taken to spread alike: also where one of them has a single sample."""
    freedom = sum(map(len, sides)) - len(sides)
    squares = sum(((side - side.mean(axis=0)) ** 2).sum(axis=0) for side in sides)
    spread = np.sqrt(squares / freedom * sum((1.0 if of_means else _cost(len(s))) / len(s) for s in sides))
    half: F64 = student(1.0 - (1.0 - LEVEL.share) / rows, freedom) * spread
    return half


def half_of_welch(sides: list[F64], rows: int) -> F64:
    """Half of Welch's interval: each side with a spread of its own, as sides of different shapes have."""
    parts = [side.var(axis=0, ddof=1) / len(side) for side in sides]
    total = sum(parts)
    weight = sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    freedom = np.floor(np.divide(total**2, weight, out=np.ones_like(total), where=weight > 0)).astype(int)
    level = 1.0 - (1.0 - LEVEL.share) / rows
    factor = {f: student(level, f) for f in np.unique(np.maximum(freedom, 1)).tolist()}
    half: F64 = np.array([factor[max(f, 1)] for f in freedom.tolist()]) * np.sqrt(total)
    return half


def detectable(half: float, samples: int) -> float:
    """The change that is seen (its interval leaves out zero) at `RATE`, where `samples` a side have this half width.

    Half a width is so many standard errors; in one case of 1 - RATE the estimate falls short of the change by more
    than some more of them. Of few samples the width itself is uncertain.
    """
    if samples < FEWEST.count:
        return half * _SEEN[max(samples, 2)]
    return half * (1.0 + NormalDist().inv_cdf(RATE.share) / normal(LEVEL.share, 1))


def normal(level: float, rows: int) -> float:
    return NormalDist().inv_cdf(1.0 - (1.0 - level) / rows / 2.0)


def _cost(n: int) -> float:
    return _MEDIAN_COST[min(n, len(_MEDIAN_COST)) - 1]


def student(level: float, freedom: int) -> float:
    """t such that |T| < t with probability `level`, for Student's T with a whole number of degrees of freedom."""
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t): a finite series for whole degrees of freedom."""
    angle = math.atan2(t, math.sqrt(freedom))
    cos, odd = math.cos(angle), freedom % 2
    term = total = cos if odd else 1.0
    for k in range(2 + odd, freedom, 2):
        term *= cos * cos * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2.0 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))

"""Groups of lengths: values that lie together, apart from others by more than the noise within.

The best split in two (least squares within) is taken where it is clear, and each side is split again. Clear means that
the medians are apart by several times the noise, by a share of the lower median that is larger where few values stand
for it, and that a gap lies between that the tail of the noise does not make. The noise is robust (median absolute
deviation), so that one spike within a side does not widen it.
"""

from __future__ import annotations

import numpy as np

from stepscope.intervals.arrays import F64, I64
from stepscope.model.threshold import Threshold

APART = Threshold(
    6.0,
    "times the noise",
    "a value that lies nearer belongs to its like",
    ("tests/derive/run/test_kinds.py",),
)
_GAP = Threshold(
    1.5,
    "times the noise",
    "a smaller gap divides no group",
    ("tests/derive/run/test_kinds.py",),
)
_LEAST = Threshold(
    5.0,
    "% of the usual length",
    "steps of steady jobs differ by less, where many are known",
    ("tests/derive/run/test_kinds.py",),
)
_FEW = Threshold(
    5.0,
    "values",
    "of so few, a value must lie apart twice as far",
    ("tests/derive/run/test_kinds.py",),
)
_FLOOR = Threshold(
    0.5,
    "% of the value",
    "noise is never taken as less: clocks, and a handful of values that happen to agree",
    ("tests/derive/run/test_kinds.py",),
)
_CHANCE = Threshold(
    0.2,
    "% of such gaps",
    "how often the tail of healthy steps may make one by chance",
    ("tests/derive/run/test_kinds.py",),
)
_FEW_GAPS = Threshold(
    4,
    "values",
    "gaps of fewer tell nothing of a tail",
    ("tests/derive/run/test_kinds.py",),
)
#: From the median absolute deviation, and from the upper quartile, to the standard deviation of a normal distribution.
_MAD, _QUARTILE = 1.4826, 0.6745


#: Gaps of the tail that are looked at, where there are as many.
_GAPS = 8


def gap_stands_out(ordered: F64, few: int) -> bool:
    """Whether the gap below the largest `few` of sorted values is more than the tail of the others makes.

    Times have tails like the exponential's, or lighter ones. There, gaps between neighbours, each times how many values
    lie above it, are alike (Renyi), and the ratio of one to the mean of m others is larger than t by chance with
    probability (1 + t / m) ** -m, whatever the scale.
    """
    n = len(ordered)
    if not 0 < few < n:
        return False
    above = np.arange(n - 1, 0, -1)
    gaps = np.diff(ordered) * above
    last = n - 1 - few
    # Of the tail: below the median gaps are of another kind, but it takes some to tell.
    others = gaps[max(0, min((n - few) * 2 // 5, last - _GAPS)) : last]
    if not len(others):
        return True
    usual = max(float(others.mean()), _FLOOR.share * abs(float(np.median(ordered))) / 2)
    m = len(others)
    return bool(float(gaps[last]) > m * (_CHANCE.share ** (-1.0 / m) - 1.0) * usual)


def noise_of(values: F64) -> float:
    """The spread of values around their median, as a standard deviation; upwards it may be wider, as times are."""
    middle, upper = (float(q) for q in np.quantile(values, [0.5, 0.75]))
    spread = _MAD * float(np.median(np.abs(values - middle)))
    return max(spread, (upper - middle) / _QUARTILE, _FLOOR.share * abs(middle))


def margin(values: F64) -> float:
    """By how much another value must exceed the median of these to lie apart from them."""
    return max(APART.value * noise_of(values), least_share(len(values)) * abs(float(np.median(values))))


def least_share(count: int) -> float:
    """The share of the usual length below which so many values tell nothing."""
    return _LEAST.share * (1.0 + _FEW.value / max(count, 1))


def clusters(values: F64) -> list[I64]:
    """Rows of values that lie together, the lower groups first."""
    order = np.argsort(values, kind="stable").astype(np.int64)
    parts = _split(values[order])
    return [order[lo:hi] for lo, hi in parts]


def _split(ordered: F64, lo: int = 0, hi: int | None = None) -> list[tuple[int, int]]:
    hi = len(ordered) if hi is None else hi
    cut = _best(ordered[lo:hi])
    if cut is None:
        return [(lo, hi)]
    return [*_split(ordered, lo, lo + cut), *_split(ordered, lo + cut, hi)]


def _best(ordered: F64) -> int | None:
    """Where sorted values fall in two: how many are in the lower part; None where they do not."""
    n = len(ordered)
    if n < 2:
        return None
    sums, squares = np.r_[0.0, np.cumsum(ordered)], np.r_[0.0, np.cumsum(ordered**2)]
    k = np.arange(1, n)
    within = squares[k] - sums[k] ** 2 / k
    within = within + (squares[n] - squares[k]) - (sums[n] - sums[k]) ** 2 / (n - k)
    for cut in (np.argsort(within, kind="stable")[:3] + 1).tolist():
        if _clear(ordered[:cut], ordered[cut:]):
            return int(cut)
    return None


def _clear(lower: F64, upper: F64) -> bool:
    """Whether two groups lie apart. The larger group tells the noise; a single value has none of its own."""
    wider = lower if len(lower) >= len(upper) else upper
    between = float(np.median(upper) - np.median(lower))
    noise = max(noise_of(g) for g in (lower, upper) if len(g) > 2 or g is wider)
    share = least_share(len(wider)) * abs(float(np.median(lower)))
    if between <= max(APART.value * noise, share) or upper[0] - lower[-1] <= max(_GAP.value * noise, share / 2):
        return False
    if len(wider) < _FEW_GAPS.count:
        return True
    both = np.r_[lower, upper] if len(upper) <= len(lower) else -np.r_[lower, upper][::-1]
    return gap_stands_out(both, min(len(lower), len(upper)))

"""Lengths of steps that recur: whether a run has them, after how many steps, and what its mean is then."""

from __future__ import annotations

import numpy as np

from stepscope.intervals.arrays import F64
from stepscope.model.threshold import Threshold

_FAR = Threshold(
    25.0,
    "% of the median",
    "a step that lies farther away is uneven",
    ("tests/test_statistics.py", "decision 0013"),
)
_OFTEN = Threshold(
    20.0,
    "% of the steps",
    "so many far steps make a run uneven; fewer are spikes",
    ("tests/test_statistics.py", "decision 0013"),
)
_FEWEST_UNEVEN = Threshold(
    4,
    "steps",
    "of which fewer say nothing of unevenness",
    ("tests/test_statistics.py", "decision 0013"),
)
_WHOLE_PERIODS = Threshold(
    4,
    "periods",
    "seen so often, a period is not chance",
    ("tests/test_statistics.py", "decision 0013"),
)
_UNEXPLAINED = Threshold(
    10.0,
    "% of the spread",
    "a period leaves at most so much of it unexplained",
    ("tests/test_statistics.py", "decision 0013"),
)


def uneven(total: F64) -> bool:
    """Whether steps of very different lengths recur, so that none of them is the usual one: more than outliers."""
    middle = float(np.median(total))
    far = np.abs(total - middle) > _FAR.share * middle
    return len(total) >= _FEWEST_UNEVEN.count and float(far.mean()) >= _OFTEN.share


def period_of(total: F64) -> int:
    """After how many steps lengths recur; 1 where they do not: the shortest period that explains nearly all of them.

    Lengths that hardly differ have none.
    """
    spread = float(((total - total.mean()) ** 2).sum())
    middle = float(np.median(total))
    if not (np.abs(total - middle) > _FAR.share * middle).any():
        return 1
    for lag in range(2, len(total) // _WHOLE_PERIODS.count + 1):
        left = sum(float(((part - part.mean()) ** 2).sum()) for part in (total[k::lag] for k in range(lag)))
        if left <= _UNEXPLAINED.share * spread:
            return lag
    return 1


def mean_weights(total: F64) -> F64:
    """Weights of steps that give their mean, over whole periods where their lengths recur."""
    whole = len(total) // (lag := period_of(total)) * lag
    return np.where(np.arange(len(total)) < whole, 1.0 / whole, 0.0)


def averaged(columns: F64, lag: int) -> F64:
    """Means of so many samples in a row; what is left at the end is left out."""
    whole = len(columns) // lag * lag
    means: F64 = columns[:whole].reshape(-1, lag, columns.shape[1]).mean(axis=1)
    return means

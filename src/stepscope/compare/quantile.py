"""How the tail of a run's steps changed: a quantile, with the interval of its difference."""

from __future__ import annotations

import math

import numpy as np

from stepscope.intervals.arrays import F64
from stepscope.model.threshold import Threshold
from stepscope.statistics.changes import Change
from stepscope.statistics.recurring import period_of
from stepscope.statistics.student import LEVEL

_TAIL = Threshold(
    0.2,
    "samples beyond the quantile",
    "the 99th percentile is told from 20 samples on: of fewer, it is their maximum",
    ("tests/compare/test_gate.py",),
)
_DRAWS, _FEWEST_DRAWS, _MOST_SAMPLES = 2000, 300, 6_000_000
_SEED = 20240229


def fewest(quantile: float) -> int:
    """Samples a side from which on a quantile is more than their longest."""
    return math.ceil(_TAIL.value / (1.0 - quantile) - 1e-9)


def quantile_change(base: F64, new: F64, quantile: float) -> Change:
    """The change of a quantile of samples, drawn over and over; no interval of so few that it is their longest.

    Where lengths recur, samples are drawn among those at the same place of the period: how often one comes is not
    chance.
    """
    middle = np.array([np.quantile(base, quantile)]), np.array([np.quantile(new, quantile)])
    if min(len(base), len(new)) < fewest(quantile):
        return Change(*middle, None, None)
    drawn = [_drawn(side, quantile, seed) - at for seed, (side, at) in enumerate(zip((base, new), middle, strict=True))]
    few = min(map(len, drawn))
    off = drawn[1][:few] - drawn[0][:few]
    tail = 50.0 * (1.0 - LEVEL.share)
    low, high = np.percentile(off, [tail, 100.0 - tail])
    delta = middle[1] - middle[0]
    # Nothing shrinks by more than all of it.
    return Change(*middle, np.maximum(delta + min(low, 0.0), -middle[0]), delta + max(high, 0.0))


def _drawn(side: F64, quantile: float, seed: int) -> F64:
    """The quantile of as many samples, drawn with replacement."""
    random = np.random.default_rng([_SEED, seed])
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _MOST_SAMPLES // len(side)))
    lag = period_of(side)
    strata = [side[k::lag] for k in range(lag)]
    picks = [part[random.integers(0, len(part), (draws, len(part)))] for part in strata]
    quantiles: F64 = np.quantile(np.concatenate(picks, axis=1), quantile, axis=1)
    return quantiles

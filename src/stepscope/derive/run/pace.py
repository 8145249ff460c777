"""The pace of the whole program, by the steps that were timed outside of what was recorded (semantics §18).

`capture run` times every step on the host. One of them may be short since the host ran ahead, and the next one long
since it waited: in the mean that is true. So what longer steps cost is never more than what the mean step takes beyond
a step that is known to be whole.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from msgspec import Struct

from stepscope.derive.run.kinds import Drift, Kinds, kinds_of
from stepscope.intervals.arrays import F64, I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

_FEWEST = Threshold(
    10,
    "steps",
    "the mean of fewer says little of what a step takes on average",
    ("tests/findings/test_pace.py",),
)


class Longer(Struct, frozen=True):
    """Steps that are longer than the usual one: how many, after how many steps they recur, their mean length."""

    count: int
    every: int | None
    mean_ns: float
    first: int
    #: over all steps
    per_step_ns: float


class Pace(Struct, frozen=True):
    """Steps of the program that were not recorded."""

    steps: int
    usual_ns: float
    mean_ns: float
    #: two standard errors of the mean
    error_ns: float
    longer: list[Longer]
    drift: Drift | None


def pace_of(profile: Profile) -> Pace | None:
    """The pace of the program beside what was recorded of it; None where too few of its steps were timed."""
    return profile.once(_pace_of)


def _pace_of(profile: Profile) -> Pace | None:
    program = profile.program_steps
    if program is None:
        return None
    number = np.flatnonzero(np.array(program.counted)).astype(np.int64)
    if len(number) < _FEWEST.count:
        return None
    lengths: F64 = np.array(program.lengths_ns, np.float64)[number]
    kinds = kinds_of(lengths, number)
    usual = kinds.kinds[0].usual_ns
    error = 2.0 * float(lengths.std(ddof=1)) / sqrt(len(lengths))
    return Pace(len(number), usual, float(lengths.mean()), error, _longer(kinds, lengths, number), kinds.drift)


def _longer(kinds: Kinds, lengths: F64, number: I64) -> list[Longer]:
    """Kinds that are longer than the usual one, and all spikes together; the most expensive first."""
    usual = kinds.kinds[0].usual_ns
    groups = [(kind.steps[~kinds.spike[kind.steps]], kind.every) for kind in kinds.kinds[1:] if kind.usual_ns > usual]
    groups.append((np.flatnonzero(kinds.spike).astype(np.int64), None))
    longer = []
    for rows, every in groups:
        if len(rows):
            mean = float(lengths[rows].mean())
            cost = (mean - usual) / every if every else float((lengths[rows] - usual).sum()) / len(lengths)
            longer.append(Longer(len(rows), every, mean, int(number[rows[0]]), cost))
    return sorted(longer, key=lambda one: -one.per_step_ns)

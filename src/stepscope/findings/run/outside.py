"""Episodes of a run in the steps of the program that were timed and not recorded (semantics §18).

`capture run` times every step on the host, under the profiler and without. What is seen once or twice in the capture
and at other steps of the program has a period that the capture alone does not say; and how much longer its steps are
without the profiler says what of its cost is the profiler's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepscope.derive.run.job import Run
from stepscope.derive.run.kinds import period_of
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.profile import Profile
from stepscope.model.program import SETTLING
from stepscope.model.threshold import Threshold

_LIKE = Threshold(
    50.0,
    "% of the recorded excess",
    "an unrecorded step that is longer by so much has the same in it",
    ("tests/findings/test_whole_program.py",),
)
_FEWEST = Threshold(
    3,
    "steps of the program",
    "with fewer, a period may be chance",
    ("tests/findings/test_whole_program.py",),
)
_WORST = Threshold(
    3.0,
    "times as long",
    "no profiler slows a step more than that: what is beyond is not the same",
    ("tests/data/pairs",),
)


class Outside(NamedTuple):
    """What the whole program tells of an episode: its period, and what is left of its cost without the profiler."""

    every: int | None = None
    plain: float = 1.0


class _Program(NamedTuple):
    lengths: F64
    recorded: Mask
    counted: Mask
    #: of the capture's steps, the program's
    number: I64


def outside(profile: Profile, run: Run, rows: I64, every: int | None) -> Outside:
    """Of samples that have something in them; `every` is their period, where the capture tells it."""
    program = _program(profile, run)
    if program is None:
        return Outside(every)
    here = np.sort(program.number[run.number[rows]])
    inside = _typical(program, program.recorded, here)
    beyond = float(program.lengths[here].mean()) - inside
    if beyond <= 0:
        return Outside(every)
    if every is None:
        every = _period(program, here, _typical(program, program.counted, here) + _LIKE.share * beyond)
    return Outside(every, 1.0 if every is None else _plain(program, here, every, beyond))


def steps_before(profile: Profile, run: Run) -> int:
    """How many steps the program had made before the first sample; 0 where that is not known."""
    program = _program(profile, run)
    if program is None or profile.program_steps is None:
        return 0
    return int(program.number[run.number[0]]) + profile.program_steps.untimed


def _program(profile: Profile, run: Run) -> _Program | None:
    """The program's steps, where those of the capture are known among them."""
    steps, longest = profile.program_steps, max((len(r.label) for r in run.ranks), default=0)
    if steps is None or sum(steps.recorded) != longest or all(steps.recorded):
        return None
    recorded = np.array(steps.recorded)
    number = np.flatnonzero(recorded).astype(np.int64)
    return _Program(np.array(steps.lengths_ns, np.float64), recorded, np.array(steps.counted), number)


def _typical(program: _Program, some: Mask, without: I64) -> float:
    """The median of some steps, without those of the episode."""
    rest = np.setdiff1d(np.flatnonzero(some), without)
    return float(np.median(program.lengths[rest])) if len(rest) else float(np.median(program.lengths))


def _period(program: _Program, here: I64, least: float) -> int | None:
    """After how many steps these and unrecorded ones that are as long recur."""
    numbers = np.arange(SETTLING.count, len(program.lengths))
    longer = numbers[(program.lengths[numbers] >= least) & ~program.recorded[numbers]]
    return period_of(np.union1d(here, longer), numbers, int(_FEWEST.value)) if len(longer) else None


def _plain(program: _Program, here: I64, every: int, beyond: float) -> float:
    """Of its cost, what is left without the profiler. The first time is not like the others: files are made, memory is
    taken, workers start."""
    numbers = np.arange(len(program.lengths))
    turns = numbers[(numbers % every == here[0] % every) & (numbers >= SETTLING.count)]
    plain = turns[1:][program.counted[turns[1:]]]
    if not len(plain):
        return 1.0
    share = (float(program.lengths[plain].mean()) - _typical(program, program.counted, turns)) / beyond
    return min(share, 1.0) if share * _WORST.value >= 1.0 else 1.0

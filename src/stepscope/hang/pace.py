"""Does the job stand still? How long ago anything happened, beside how long it usually takes until something does."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from stepscope.model.flight import COMPLETED, NONE, Flight
from stepscope.model.threshold import Threshold

_LEAST = Threshold(
    20_000_000.0,
    "µs",
    "a job stands still when nothing happened for so long",
    ("tests/hang/test_verdicts.py",),
)
_LEAST_BLIND = Threshold(
    60_000_000.0,
    "µs",
    "the same where rings hold less than a round: a longer pause may lie before what they hold",
    ("tests/hang/test_verdicts.py",),
)
_PAUSES = Threshold(
    4,
    "times its longest pause before",
    "a checkpoint or an evaluation pauses a job, too",
    ("tests/hang/test_verdicts.py",),
)
_SLOWER = Threshold(
    2.0,
    "times what rounds took before",
    "a job whose last rounds take so long is slow, not still",
    ("tests/hang/test_verdicts.py",),
)
_FEWEST_ROUNDS = Threshold(
    3,
    "rounds",
    "of fewer, nobody knows which are usual",
    ("tests/hang/test_verdicts.py",),
)

State = Literal["hung", "slow", "running", "unknown"]


class Pace(msgspec.Struct, frozen=True):
    """`still_ns`: since when nothing happened, `NONE` where nothing says when the dumps were taken."""

    state: State
    still_ns: int
    pause_ns: int
    round_ns: int = NONE
    last_round_ns: int = NONE
    #: what says when dumps were taken
    dated: str = ""


def pace(flight: Flight) -> Pace:
    """The pace of the job, on the clocks of its nodes as they are."""
    calls = flight.calls
    done = calls.completed_ns[(calls.completed_ns != NONE) & (calls.state == COMPLETED)]
    times = np.sort(np.concatenate([calls.created_ns[calls.created_ns != NONE], done]))
    if not len(times):
        return Pace("unknown", NONE, 0)
    pause = int(np.diff(times).max()) if len(times) > 1 else 0
    with_time = [d for d in flight.dumps if d.dumped_ns != NONE]
    # Files are new where they are copies: what dumps themselves say goes before.
    with_time = [d for d in with_time if d.dated != "file"] or with_time
    dumped = [d.dumped_ns for d in with_time]
    dated = with_time[0].dated if with_time else ""
    before, last = _rounds(flight)
    if not dumped or max(dumped) < int(times[-1]) - _LEAST.ns:
        return Pace("unknown", NONE, pause, before, last)
    still = max(0, int(np.median(dumped)) - int(times[-1]))
    blind = before == NONE and all(dump.overflowed for dump in flight.dumps)
    if still > max(_LEAST_BLIND.ns if blind else _LEAST.ns, _PAUSES.count * pause):
        return Pace("hung", still, pause, before, last, dated)
    slow = before > 0 and max(last, still) > _SLOWER.value * before
    return Pace("slow" if slow else "running", still, pause, before, last, dated)


def _rounds(flight: Flight) -> tuple[int, int]:
    """How long a round takes, from a call to when the same is made again: usually, and at last.

    Of the rank with the most calls, and of those that come again after the same number of others each time: steps. -1
    where there are none, or too few to compare.
    """
    calls = flight.calls
    rank = int(np.bincount(calls.rank).argmax())
    rows = np.flatnonzero(calls.rank == rank)
    keys = np.stack([calls.group[rows], calls.signature[rows], calls.stack[rows]])
    token = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    for kind in np.unique(token).tolist():
        places = np.flatnonzero(token == kind)
        apart = np.diff(places)
        if (
            len(apart) >= _FEWEST_ROUNDS.count
            and (apart == apart[0]).all()
            and apart[0] * (len(apart) + 2) > len(token)
        ):
            made = np.diff(calls.created_ns[rows[places]])
            # A host that runs ahead makes many calls at once, and none for a while: the GPU keeps the pace.
            ended = calls.completed_ns[rows[places]]
            gaps = [made, np.diff(ended[(calls.state[rows[places]] == COMPLETED) & (ended != NONE)])]
            gaps = [one for one in gaps if len(one) > 1]
            return int(max(np.median(one[: len(one) // 2]) for one in gaps)), int(min(one[-2:].max() for one in gaps))
    return NONE, NONE

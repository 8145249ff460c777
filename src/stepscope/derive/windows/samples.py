"""Which steps are samples of the pace: those that were recorded whole (semantics §4). Whoever counts steps asks here.

A step lasts from the end of the one before it, so that the first of a capture has no beginning: what the program did
before its range (it loaded a batch), or what the GPU still had to do from before the capture, is missing or too much.
The last may lack its end: the capture ended before the GPU was through with it. Steps that only chunks tell last from
one beginning to the next: the first of them is whole, the last has no end. Where no step is whole, those that there are
count all the same: a capture of one step has nothing else to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.recorded import recorded
from stepscope.derive.windows.periods import Periods, periods
from stepscope.derive.windows.steps import by_chunks
from stepscope.intervals.arrays import I64, Mask
from stepscope.model.note import Note, noted
from stepscope.model.ranks import some_ranks
from stepscope.model.threshold import Threshold

#: Why a step is not a sample: no step before it was recorded, its end was not, or none of its GPU work.
Cut = Literal["begin", "end", "empty"]
_FEW = Threshold(
    5,
    "launches without an op",
    "so many prove nothing: single records are lost",
    ("tests/derive/windows/test_windows.py",),
)


@dataclass(frozen=True)
class Samples:
    """The steps of one rank: which are cut, and which count."""

    rank: int
    #: by step: why it is cut, None for one that is whole
    cut: list[Cut | None]
    counted: Mask
    #: length of every step: on the GPU, on the host where the rank has no GPU work at all
    lengths: I64

    @property
    def left_out(self) -> int:
        return int((~self.counted).sum())


def samples(data: RankData) -> Samples | None:
    """Which of the rank's steps are samples; None where nothing marks steps."""
    return data.once(_samples)


def _samples(data: RankData) -> Samples | None:
    steps = periods(data)
    return None if steps is None else samples_of(data, steps)


def samples_of(data: RankData, steps: Periods) -> Samples:
    """The same of steps that other ranges mark."""
    on_gpu = len(data.start) > 0
    lengths = np.where(steps.worked, np.diff(steps.gpu), 0) if on_gpu else np.diff(steps.cpu)
    cut: list[Cut | None] = [None if worked or not on_gpu else "empty" for worked in steps.worked.tolist()]
    open_end = by_chunks(steps.anchors)
    if not open_end:
        cut[0] = cut[0] or "begin"
    last = max((k for k, why in enumerate(cut) if why != "empty"), default=0)
    if cut[last] is None and (open_end or recorded(data).lost_at_end > _FEW.count):
        cut[last] = "end"
    counted = np.array([why is None for why in cut], dtype=bool)
    if not counted.any():
        counted[[k for k, why in enumerate(cut) if why != "empty"]] = True
    return Samples(data.rank, cut, counted, lengths)


def notes_on_left_out(ranks: list[Samples]) -> list[Note]:
    """How many steps are not samples, and why."""
    reasons = {
        "begin": "the first: nothing before it was recorded",
        "end": "the last: its end was not recorded",
        "empty": "without GPU work",
    }
    counts = {why: {r.rank: _cut(r, why) for r in ranks if _cut(r, why)} for why in reasons}
    parts = []
    for why, by_rank in counts.items():
        if not by_rank:
            continue
        most = max(by_rank.values())
        where = "" if len(by_rank) == len(ranks) else f" on {some_ranks(sorted(by_rank))}"
        parts.append(f"{most} ({reasons[why]}){where}")
    if not parts:
        return []
    return [noted("steps-cut", reasons="; ".join(parts))]


def _cut(ranked: Samples, why: str) -> int:
    return sum(w == why and not c for w, c in zip(ranked.cut, ranked.counted.tolist(), strict=True))

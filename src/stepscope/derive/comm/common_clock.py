"""Times of every rank on one clock: what pictures across ranks are drawn on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepscope.derive.comm.across import across
from stepscope.derive.comm.clock_fit import Clocks
from stepscope.errors import CannotAnswer
from stepscope.model.profile import Profile

I64 = npt.NDArray[np.int64]


@dataclass
class CommonClock:
    """What brings a rank's own times to those of the first file, as `clocks` tells."""

    clocks: Clocks | None = None
    #: rank -> index of its source among those of the clocks, and what rebases it by the sessions' UTC
    place: dict[int, tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def at(self, rank: int, own: I64) -> I64:
        """`own` times of the rank on the common clock; as they are where nothing connects the clocks."""
        if self.clocks is None:
            return own
        source, shift = self.place[rank]
        return self.clocks.correct(np.full(len(own), source, np.int64), own + shift)


def common_clock(profile: Profile, how: str = "auto") -> CommonClock:
    """The clock of all ranks. One file has one; several are aligned by their collectives, where they have any.

    A profile keeps it: matching all communication costs more than most questions that need only the clock.
    """
    if profile.ranks["source"].n_unique() < 2:
        return CommonClock()
    return profile.once(_aligned, how)


def _aligned(profile: Profile, how: str) -> CommonClock:
    try:
        found = across(profile, how)
    except CannotAnswer as reason:
        return CommonClock(notes=[f"clocks of several files are taken as recorded: {reason.message}"])
    place = {r: (s, shift) for r, s, shift in found.ranks.select("rank", "source", "shift").iter_rows()}
    return CommonClock(found.clocks, place, found.notes)

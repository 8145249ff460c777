"""Times of every rank on one clock: from a rank's own clock to that of the first file, and nowhere else.

`clock_fit` says how the files' clocks differ, `across` finds the collectives that tell; whoever draws or walks across
ranks asks here.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from stepscope.derive.comm.across import Across, across
from stepscope.derive.comm.clock_fit import Clocks
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile


class CommonClock(Struct, frozen=True):
    """What brings a rank's own times to those of the first file, as `clocks` tells."""

    clocks: Clocks | None = None
    #: rank -> index of its source among those of the clocks, and what rebases it by the sessions' UTC
    place: dict[int, tuple[int, int]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @staticmethod
    def of(met: Across | None) -> CommonClock:
        """The clock on which communication was matched; times as they are where none was."""
        if met is None:
            return CommonClock()
        place = {r: (s, shift) for r, s, shift in met.ranks.select("rank", "source", "shift").iter_rows()}
        return CommonClock(met.clocks, place, met.notes)

    def at(self, rank: int, own: I64) -> I64:
        """`own` times of the rank on the common clock; as they are where nothing connects the clocks."""
        if self.clocks is None:
            return own
        source, shift = self.place[rank]
        return self.clocks.correct(np.full(len(own), source, np.int64), own + shift)

    def moment(self, rank: int, own: int) -> int:
        """One such time."""
        return int(self.at(rank, np.array([own], dtype=np.int64))[0])


class Line(Struct, frozen=True):
    """The common clock over a rank's own, as answers give both: at `own` it is `common`; `rate` own ns pass in one ns.

    Where the clocks run alike the rate is 1, and nothing is rounded.
    """

    own: int
    common: int
    rate: float = 1.0

    @staticmethod
    def through(own: tuple[int, int], common: tuple[int, int]) -> Line:
        """The line through two moments."""
        passed = common[1] - common[0]
        return Line(own[0], common[0], (own[1] - own[0]) / passed if passed > 0 else 1.0)

    def at(self, own: I64) -> I64:
        """The common clock at these times of the rank's own."""
        since = own - self.own
        slower: I64 = np.rint(since * (1 - 1 / self.rate)).astype(np.int64)
        return self.common + since - slower

    def moment(self, own: int) -> int:
        """One such time."""
        return int(self.at(np.array([own], dtype=np.int64))[0])


def common_clock(profile: Profile, how: str = "auto") -> CommonClock:
    """The clock of all ranks. One file has one; several are aligned by their collectives, where they have any.

    A profile keeps it: matching all communication costs more than most questions that need only the clock.
    """
    if profile.ranks["source"].n_unique() < 2:
        return CommonClock()
    return profile.once(_aligned, how)


def _aligned(profile: Profile, how: str) -> CommonClock:
    try:
        return CommonClock.of(across(profile, how))
    except CannotAnswer as reason:
        return CommonClock(notes=[noted("clocks-not-aligned", why=reason.message)])

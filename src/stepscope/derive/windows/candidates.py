"""Ranges of a rank that can mark a window, as arrays: names are judged once for all ranks, not texts rank by rank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, Mask, by_id
from stepscope.model.memo import cached_property


@dataclass(frozen=True)
class Candidates:
    """Some of a rank's own, whole ranges, in the order in which they stand."""

    data: RankData
    name: npt.NDArray[np.uint32]
    start: I64
    end: I64
    depth: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.name)

    def of(self, rows: I64 | Mask) -> Candidates:
        """Some of them."""
        return Candidates(self.data, self.name[rows], self.start[rows], self.end[rows], self.depth[rows])

    def named(self, *patterns: str, but: Iterable[str] = ()) -> Candidates:
        """Those whose texts match all of these regular expressions, and none of the others."""
        wanted = np.ones(len(self.name), dtype=bool)
        for pattern in patterns:
            wanted &= self.data.profile.names_with(pattern)[self.name]
        for pattern in but:
            if wanted.any():
                wanted &= ~self.data.profile.names_with(pattern)[self.name]
        return self.of(wanted)

    def searched(self, pattern: str) -> Candidates:
        """Those whose texts match what may be of Python's regular expressions alone: a user can have written it."""
        search = re.compile(pattern).search
        wanted = [i for i, text in zip(self.distinct.tolist(), self._texts, strict=True) if search(text)]
        return self.of(np.isin(self.name, np.array(wanted, self.name.dtype)))

    def families(self) -> list[Candidates]:
        """Those whose texts differ in their numbers alone, together; in the order of their first ones."""
        if not len(self):
            return []
        code: dict[str, int] = {}
        of_name = np.zeros(int(self.distinct.max()) + 1, np.int64)
        of_name[self.distinct] = [code.setdefault(text, len(code)) for text in self._folded]
        family = of_name[self.name]
        if len(code) == 1:
            return [self]
        order = by_id(family)
        ends = np.flatnonzero(np.diff(family[order])) + 1
        return [self.of(rows) for rows in sorted(np.split(order, ends), key=lambda rows: int(rows[0]))]

    def texts(self) -> list[str]:
        return self.data.profile.names.gather(self.name).to_list()

    @property
    def family(self) -> str:
        """The text without its numbers, of those that are one family."""
        return self._folded[0]

    @cached_property
    def distinct(self) -> npt.NDArray[np.uint32]:
        """Ids of their texts."""
        return np.unique(self.name)

    @cached_property
    def _texts(self) -> list[str]:
        return self.data.profile.names.gather(self.distinct).to_list()

    @cached_property
    def _folded(self) -> list[str]:
        return [_NUMBER.sub("#", text) for text in self._texts]

    def numbers(self) -> tuple[I64, Mask]:
        """The last number in each text, and where there is one that 64 bits hold."""
        last = self.data.profile.names.gather(self.distinct).str.extract_all(r"\d+").list.last()
        of_name = last.cast(pl.Int64, strict=False)
        at = np.searchsorted(self.distinct, self.name)
        return of_name.fill_null(0).to_numpy()[at], of_name.is_not_null().to_numpy()[at]


#: A number, as Polars' regular expressions have it: of any script.
_NUMBER = re.compile(r"\d+")


def candidates(data: RankData) -> Candidates:
    """All of the rank's: whole ranges that say what the program was doing."""
    frame, rows = data.ranges, data.own_ranges
    closed = rows[frame["closed"].to_numpy()[rows]]
    name, start, end, depth = (frame[c].to_numpy()[closed] for c in ("name", "start_ns", "end_ns", "depth"))
    return Candidates(data, name, start, end, depth)

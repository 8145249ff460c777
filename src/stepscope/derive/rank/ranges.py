"""A rank's ranges: which of them say what the program was doing, how they nest, and what they are called."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.rank.tables import RankTables
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.labels import SETUP_PATTERN
from stepscope.model.memo import cached_property
from stepscope.model.nesting import Nesting, climb, nest

#: Domains of the profiler's own injections: their ranges say nothing about the program's structure.
_TOOL_DOMAINS = r"(?i)^(gil trace|python (backtrace|periodic sampling).*)$"
#: Domains of libraries. Their ranges are calls, not parts of the program: they are not steps or stages, and enclose
#: nothing (`derive/rank/libraries.py`).
LIBRARY_DOMAINS = (
    r"(?i)^(nccl|cublas(lt)?|cudnn|cufft|curand|cusolver\w*|cusparse\w*|cutensor\w*|cccl|cub|thrust|mpi|ucx|ucc"
    r"|nvshmem|libnvshmem.*|openacc)$"
)

#: Group of the ranges that belong to no thread's stack; no thread id is negative, and NONE is taken.
_NO_THREAD = -2


class RankRanges(RankTables):
    """Ranges of one rank, by row of its `ranges`."""

    @cached_property
    def own_ranges(self) -> I64:
        """Rows of the ranges that say what the program was doing: no setup label, no marks, no tool's, no library's."""
        frame = self.ranges
        setup = self.profile.names_with(SETUP_PATTERN)
        tools = self.profile.names_with(f"{_TOOL_DOMAINS}|{LIBRARY_DOMAINS}")
        if frame.height == 0:
            return np.empty(0, np.int64)
        skip = setup[frame["name"].to_numpy()] | (frame["kind"] == "mark").to_numpy()
        domain = frame["domain"]
        skip |= tools[domain.fill_null(0).to_numpy()] & domain.is_not_null().to_numpy()
        return np.flatnonzero(~skip)

    def labelled_at(self) -> int | None:
        """When the rank's setup label began: pushed right after the profiler's start, it tells where a capture begins.

        Null without one, and where the rank launched something before it.
        """
        frame = self.ranges
        if frame.height == 0:
            return None
        setup = self.profile.names_with(SETUP_PATTERN)[frame["name"].to_numpy()]
        if not setup.any():
            return None
        begin = int(frame["start_ns"].to_numpy()[setup].min())
        return begin if self.calls.height == 0 or begin <= self.calls["start_ns"].min() else None  # type: ignore[operator]

    def anchor_ranges(self) -> pl.DataFrame:
        """Ranges that can anchor a window: whole ones, with their text."""
        return self.once(_anchor_ranges)

    def range_at(self, tid: I64, at: I64) -> I64:
        """Row of the deepest own range of thread `tid` at each moment, else of any thread; NONE where there is none."""
        per_thread, everywhere, rows = self._nestings
        deepest = per_thread.enclosing(tid, at)
        missing = deepest == NONE
        deepest[missing] = everywhere.enclosing(np.zeros(int(missing.sum()), np.int64), at[missing])
        hit = deepest != NONE
        deepest[hit] = rows[deepest[hit]]
        return deepest

    @cached_property
    def range_edges(self) -> I64:
        """Starts and ends of the rank's own ranges."""
        frame = self.ranges[self.own_ranges]
        return np.concatenate([frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()])

    def ancestors_until(self, ranges: I64, wanted: Mask) -> I64:
        """Climb from each range to the first, itself included, whose row `wanted` marks; NONE where there is none."""
        return climb(ranges, wanted, self.parents)

    def own_ranges_named(self, pattern: str) -> Mask:
        """By row of `ranges`: own ones whose text matches."""
        names = self._name_id  # first: reading the ranges adds their texts
        return self.profile.names_with(pattern)[names] & self._is_own

    def outermost_named(self, pattern: str) -> I64:
        """Rows of own ranges whose text matches, in order; of such ranges within each other, the outermost."""
        named = self.own_ranges_named(pattern)
        rows = np.flatnonzero(named).astype(np.int64)
        outermost: I64 = rows[self.ancestors_until(self.parents[rows], named) == NONE]
        return outermost

    def text_of(self, ranges: I64) -> pl.Series:
        """Texts of ranges, null for NONE."""
        hit = pl.Series(ranges != NONE)
        if self.ranges.height == 0:
            return pl.repeat(None, len(ranges), dtype=pl.String, eager=True).alias("text")
        ids = self.ranges["name"].gather(np.maximum(ranges, 0))
        text = self.profile.names.gather(ids)
        return pl.select(pl.when(hit).then(text).alias("text")).to_series()

    @cached_property
    def own_parents(self) -> I64:
        """Of each own range, which own range is around it (both as places in `own_ranges`); NONE for none."""
        rows = self.own_ranges
        index = np.full(self.ranges.height + 1, NONE, dtype=np.int64)  # the last is for NONE
        index[rows] = np.arange(len(rows))
        return index[self.ancestors_until(self.parents[rows], self._is_own)]

    @cached_property
    def _nestings(self) -> tuple[Nesting, Nesting, I64]:
        """Own ranges nested per thread (push/pop only), and over all threads; rows map back to `ranges`."""
        rows = self.own_ranges
        frame = self.ranges[rows]
        tid, start, end = (frame[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
        # Start/end ranges may cross threads: they enclose only through the process-wide lookup.
        thread = np.where((frame["kind"] == "pushpop").to_numpy(), tid, np.int64(_NO_THREAD))
        return nest(thread, start, end), nest(np.zeros(len(rows), np.int64), start, end), rows

    @cached_property
    def _is_own(self) -> Mask:
        is_own = np.zeros(self.ranges.height, dtype=bool)
        is_own[self.own_ranges] = True
        return is_own

    @cached_property
    def _name_id(self) -> npt.NDArray[np.uint32]:
        return self.ranges["name"].to_numpy()

    @cached_property
    def parents(self) -> I64:
        """Row of the range around each range, NONE where there is none."""
        return self.ranges["parent"].cast(pl.Int64).fill_null(NONE).to_numpy()


def _anchor_ranges(data: RankRanges) -> pl.DataFrame:
    frame = data.ranges[data.own_ranges]
    return frame.with_columns(data.profile.names.gather(frame["name"]).alias("text")).filter(pl.col("closed"))

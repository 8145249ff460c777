"""One rank as arrays: its ops, what launched them and when, and in which ranges and stages that was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope import progress
from stepscope.derive.rank.ranges import RankRanges
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import I32, I64, NONE, Mask
from stepscope.model.columns import ROLE
from stepscope.model.memo import cached_property
from stepscope.model.profile import Profile

#: An op in no stage.
NO_STAGE = "(no stage)"

COMPUTE, COMM, COPY = range(len(ROLE.categories))


def ranks_of(profile: Profile) -> Iterator[RankData]:
    """Every rank of the profile, in order. Made once per profile: derived columns are shared between questions."""
    for rank in progress.each("rank", profile.rank_ids()):
        yield rank_of(profile, rank)


def rank_of(profile: Profile, rank: int) -> RankData:
    """One rank of the profile."""
    return profile.once_per_rank(_rank_data, rank)


def _rank_data(profile: Profile, rank: int) -> RankData:
    return RankData(profile, profile.once(_rows)[rank])


def _rows(profile: Profile) -> dict[int, dict[str, Any]]:
    """The `ranks` table by rank: looking each of them up in it would take a scan per rank."""
    return {row["rank"]: row for row in profile.ranks.iter_rows(named=True)}


def coded(column: pl.Series, value: str) -> Mask:
    """Which rows of an enumeration's column are this value."""
    assert isinstance(column.dtype, pl.Enum)
    same: Mask = column.to_physical().to_numpy() == column.dtype.categories.to_list().index(value)
    return same


class RankData(RankRanges):
    """Arrays of one rank. Rows index the rank's own ops, calls and ranges."""

    # -- ops -----------------------------------------------------------------------------------------------------

    @cached_property
    def start(self) -> I64:
        return self.ops["start_ns"].to_numpy()

    @cached_property
    def end(self) -> I64:
        return self.ops["end_ns"].to_numpy()

    @cached_property
    def stream(self) -> npt.NDArray[np.int32]:
        return self.ops["stream"].to_numpy()

    @cached_property
    def name(self) -> npt.NDArray[np.uint32]:
        """Name ids."""
        return self.ops["name"].to_numpy()

    @cached_property
    def role(self) -> npt.NDArray[np.uint8]:
        """COMPUTE, COMM or COPY."""
        return self.ops["role"].to_physical().to_numpy()

    @cached_property
    def is_kernel(self) -> Mask:
        """Kernels and graphs, as against copies and memsets."""
        return self.of_kind("kernel") | self.of_kind("graph")

    def of_kind(self, kind: str) -> Mask:
        """Ops of one kind: codes are compared, which costs a tenth of what comparing texts does."""
        return coded(self.ops["kind"], kind)

    @cached_property
    def compute(self) -> Spans:
        """∪ of all compute of the rank, inside any window or not."""
        computing = self.role == COMPUTE
        return union(self.start[computing], self.end[computing])

    @cached_property
    def by_end(self) -> I64:
        """Ops in the order in which they end."""
        return np.argsort(self.end, kind="stable").astype(np.int64)

    def lengths(self, lo: int, hi: int) -> I64:
        """Durations of all ops, cut at [lo, hi)."""
        cut: I64 = np.maximum(np.minimum(self.end, hi) - np.maximum(self.start, lo), 0)
        return cut

    # -- launches ------------------------------------------------------------------------------------------------

    @cached_property
    def launch(self) -> I64:
        """Row of the launching call, NONE where the trace has none."""
        launch = self.ops["launch"]
        if launch.null_count() == 0:
            return launch.to_numpy().astype(np.int64)
        return launch.cast(pl.Int64).fill_null(NONE).to_numpy()

    @cached_property
    def unlinked(self) -> int:
        """Ops without a launch record."""
        return int((self.launch == NONE).sum())

    @cached_property
    def launched_at(self) -> I64:
        """Start of the launching call on the host; the op's own start where there is none (semantics §3)."""
        linked = self.launch != NONE
        if len(linked) and linked.all():
            return self.calls["start_ns"].to_numpy()[self.launch]
        at = self.start.copy()
        at[linked] = self.calls["start_ns"].to_numpy()[self.launch[linked]]
        return at

    def launched_between(self, lo: int, hi: int) -> tuple[I64, tuple[int | None, int | None]]:
        """Ops launched in the host range [lo, hi), and their GPU window.

        Ops without a launch record belong to the window in whose GPU window they start. Where no op of the rank has
        one, GPU time is all there is, and the host range is taken for it.
        """
        order, times = self.by_launch
        inside = order[slice(*np.searchsorted(times, [lo, hi]))]
        if not len(order):
            inside = np.arange(*np.searchsorted(self.start, [lo, hi]), dtype=np.int64)
        if not len(inside):
            return np.empty(0, np.int64), (None, None)
        first, last = int(self.start[inside].min()), int(self.end[inside].max())
        if self.unlinked:
            loose = np.flatnonzero(self.launch == NONE)
            within = loose[slice(*np.searchsorted(self.start[loose], [first, last]))]
            inside = np.union1d(inside, within)
        return np.sort(inside), (first, last)

    def launches_in(self, start: I64, end: I64) -> I64:
        """How many ops were launched in each host range [start, end); by GPU time where no launch is recorded."""
        order, times = self.by_launch
        times = times if len(order) else self.start
        count: I64 = np.searchsorted(times, end) - np.searchsorted(times, start)
        return count

    @cached_property
    def by_launch(self) -> tuple[I64, I64]:
        """Ops that have a launch record, in the order of their launches; and when those were."""
        linked = np.flatnonzero(self.launch != NONE)
        order = linked[np.argsort(self.launched_at[linked], kind="stable")]
        return order, self.launched_at[order]

    def host_span(self) -> tuple[int | None, int | None]:
        """First to last host activity, where there is any."""
        frames = [f for f in (self.calls, self.ranges) if f.height]
        if not frames:
            return None, None
        return min(f["start_ns"].min() for f in frames), max(f["end_ns"].max() for f in frames)  # type: ignore[type-var,return-value]

    def recorded_span(self) -> tuple[int | None, int | None]:
        """From the first to the last record, of the host or of the GPU."""
        lo, hi = self.host_span()
        if len(self.start) == 0:
            return lo, hi
        first, last = int(self.start.min()), int(self.end.max())
        return (first if lo is None else min(lo, first)), (last if hi is None else max(hi, last))

    # -- the ranges of ops ---------------------------------------------------------------------------------------

    def enclosing(self, ops: I64) -> I64:
        """Row of the range that encloses the launch of each op, NONE where there is none (semantics §3)."""
        if "_every_enclosing" in self.__dict__ or 2 * len(ops) > len(self.start):
            return self._every_enclosing[ops].astype(np.int64)
        return self._enclosing(ops)

    @cached_property
    def _every_enclosing(self) -> I32:
        """The same of all ops: worked out where a question asks about most of them, since others will."""
        enclosing = np.full(len(self.start), NONE, dtype=np.int32)
        ops, at = self.by_launch  # in time order: moments are looked up in one go, not one by one
        enclosing[ops] = self.range_at(self.calls["tid"].to_numpy()[self.launch[ops]].astype(np.int64), at)
        if self.unlinked:
            loose = np.flatnonzero(self.launch == NONE)
            enclosing[loose] = self._enclosing(loose)
        return enclosing

    def _enclosing(self, ops: I64) -> I64:
        linked = self.launch[ops] != NONE
        tid = np.full(len(ops), NONE, dtype=np.int64)
        tid[linked] = self.calls["tid"].to_numpy()[self.launch[ops[linked]]]
        return self.range_at(tid, self.launched_at[ops])

    def within(self, ops: I64, pattern: str) -> Mask:
        """Whether each op was launched within a range, at any depth, whose text matches."""
        if self.ranges.height == 0:
            return np.zeros(len(ops), dtype=bool)
        named = self.own_ranges_named(pattern)
        inside: Mask = self.ancestors_until(self.enclosing(ops), named) != NONE
        return inside

    def stage_of(self, ops: I64, pattern: str | None = None) -> pl.Series:
        """Stage of each op: from its enclosing range up to the first name that matches; the last match in it counts.

        `pattern` is what a stage range is called, where it is not what the trainer's labels say.
        """
        if self.ranges.height == 0:
            return pl.Series("stage", [NO_STAGE] * len(ops), dtype=pl.String)
        stages, staged = self.once(_stages, pattern or self.profile.labels.stage)
        at = self.ancestors_until(self.enclosing(ops), staged)
        text = stages.gather(self.ranges["name"].gather(np.maximum(at, 0)))
        return pl.select(
            pl.when(pl.Series(at != NONE)).then(text).otherwise(pl.lit(NO_STAGE)).alias("stage")
        ).to_series()


def _stages(data: RankData, pattern: str) -> tuple[pl.Series, Mask]:
    """The stage that each name of the string table speaks of, and which ranges speak of any."""
    ranges = data.ranges["name"].to_numpy()  # first: reading them adds their texts
    stages = data.profile.names_last(pattern)
    return stages, stages.is_not_null().to_numpy()[ranges]

"""One rank's tables as arrays, with what most questions derive from them: launch times, enclosing ranges, stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.intervals import Spans, union
from stepscope.model.columns import ROLE
from stepscope.model.labels import SETUP_PATTERN
from stepscope.model.memo import Memo
from stepscope.model.nesting import NONE, Nesting, nest
from stepscope.model.profile import Profile

I64 = npt.NDArray[np.int64]
P = ParamSpec("P")
T = TypeVar("T")

#: What the trainer's stage ranges are called.
STAGE = r"stage([1-5])_([fbw])"
#: Domains of NCCL and of the profiler's own injections: their ranges say nothing about the program's structure.
TOOL_DOMAINS = r"(?i)^(nccl|gil trace|python backtrace.*)$"
#: An op in no stage.
NO_STAGE = "(no stage)"

#: Group of the ranges that belong to no thread's stack; no thread id is negative, and NONE is taken.
_NO_THREAD = -2

COMPUTE, COMM, COPY = range(len(ROLE.categories))


def ranks_of(profile: Profile) -> Iterator[RankData]:
    """Every rank of the profile, in order. Made once per profile: derived columns are shared between questions."""
    for rank in profile.rank_ids():
        yield profile.once_per_rank(_rank_data, rank)


def _rank_data(profile: Profile, rank: int) -> RankData:
    return RankData(profile, profile.ranks.row(by_predicate=pl.col("rank") == rank, named=True))


def _by_rank(profile: Profile, table: str) -> dict[int, pl.DataFrame]:
    return dict(profile.by_rank(table))


def _judged(profile: Profile, function: Callable[[pl.Series], I64], names: int) -> I64:
    """`function` of the string table while it has so many names: it grows as tables are read."""
    return function(profile.names)


class RankData:
    """Arrays of one rank. Rows index the rank's own ops, calls and ranges."""

    def __init__(self, profile: Profile, row: dict[str, Any]) -> None:
        self.profile, self._memo = profile, Memo()
        self.rank: int = row["rank"]
        self.pid: int | None = row["pid"]  # null where the trace does not tell
        self.device: int | None = row["device"]
        self.setup: str | None = row["setup"]

    def _mine(self, table: str) -> pl.DataFrame:
        return self.profile.once(_by_rank, table)[self.rank]

    def once(self, function: Callable[Concatenate[RankData, P], T], *args: P.args, **options: P.kwargs) -> T:
        """`function(data, …)`, computed when first asked for and kept with the rank."""
        return self._memo.once(function, self, *args, **options)

    # -- ops -----------------------------------------------------------------------------------------------------

    @cached_property
    def ops(self) -> pl.DataFrame:
        return self._mine("ops")

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
    def is_kernel(self) -> npt.NDArray[np.bool_]:
        """Kernels and graphs, as against copies and memsets."""
        return self.ops["kind"].is_in(["kernel", "graph"]).to_numpy()

    @cached_property
    def compute(self) -> Spans:
        """∪ of all compute of the rank, inside any window or not."""
        mine = self.role == COMPUTE
        return union(self.start[mine], self.end[mine])

    # -- launches ------------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> pl.DataFrame:
        return self._mine("calls")

    @cached_property
    def launch(self) -> I64:
        """Row of the launching call, NONE where the trace has none."""
        return self.ops["launch"].cast(pl.Int64).fill_null(NONE).to_numpy()

    @cached_property
    def unlinked(self) -> int:
        """Ops without a launch record."""
        return int((self.launch == NONE).sum())

    @cached_property
    def launched_at(self) -> I64:
        """Start of the launching call on the host; the op's own start where there is none (semantics §3)."""
        linked = self.launch != NONE
        at = self.start.copy()
        at[linked] = self.calls["start_ns"].to_numpy()[self.launch[linked]]
        return at

    def launched_between(self, lo: int, hi: int) -> tuple[I64, tuple[int | None, int | None]]:
        """Ops launched in the host range [lo, hi), and their GPU window.

        Ops without a launch record belong to the window in whose GPU window they start. Where no op of the rank has
        one, GPU time is all there is, and the host range is taken for it.
        """
        order, times = self._by_launch
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
        order, times = self._by_launch
        times = times if len(order) else self.start
        count: I64 = np.searchsorted(times, end) - np.searchsorted(times, start)
        return count

    @cached_property
    def _by_launch(self) -> tuple[I64, I64]:
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

    # -- ranges --------------------------------------------------------------------------------------------------

    @cached_property
    def ranges(self) -> pl.DataFrame:
        return self._mine("ranges")

    @cached_property
    def host(self) -> pl.DataFrame:
        return self._mine("host")

    @cached_property
    def syncs(self) -> pl.DataFrame:
        return self._mine("syncs")

    @cached_property
    def comms(self) -> pl.DataFrame:
        return self._mine("comms")

    @cached_property
    def own_ranges(self) -> I64:
        """Rows of the ranges that say what the program was doing: no setup label, no marks, nothing of a tool."""
        frame = self.ranges
        names = self.profile.names  # after the ranges were read
        setup = names.str.contains(SETUP_PATTERN).to_numpy()
        tools = names.str.contains(TOOL_DOMAINS).to_numpy()
        if frame.height == 0:
            return np.empty(0, np.int64)
        skip = setup[frame["name"].to_numpy()] | (frame["kind"] == "mark").to_numpy()
        domain = frame["domain"]
        skip |= tools[domain.fill_null(0).to_numpy()] & domain.is_not_null().to_numpy()
        return np.flatnonzero(~skip)

    def anchor_ranges(self) -> pl.DataFrame:
        """Ranges that can anchor a window: whole ones, with their text."""
        return self.once(_anchor_ranges)

    @cached_property
    def _nestings(self) -> tuple[Nesting, Nesting, I64]:
        """Own ranges nested per thread (push/pop only), and over all threads; rows map back to `ranges`."""
        rows = self.own_ranges
        frame = self.ranges[rows]
        tid, start, end = (frame[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
        # Start/end ranges may cross threads: they enclose only through the process-wide lookup.
        thread = np.where((frame["kind"] == "pushpop").to_numpy(), tid, np.int64(_NO_THREAD))
        return nest(thread, start, end), nest(np.zeros(len(rows), np.int64), start, end), rows

    def enclosing(self, ops: I64) -> I64:
        """Row of the range that encloses the launch of each op, NONE where there is none (semantics §3)."""
        linked = self.launch[ops] != NONE
        tid = np.full(len(ops), NONE, dtype=np.int64)
        tid[linked] = self.calls["tid"].cast(pl.Int64).to_numpy()[self.launch[ops[linked]]]
        return self.range_at(tid, self.launched_at[ops])

    def range_at(self, tid: I64, at: I64) -> I64:
        """Row of the deepest own range of thread `tid` at each moment, else of any thread; NONE where there is none."""
        per_thread, everywhere, rows = self._nestings
        found = per_thread.enclosing(tid, at)
        missing = found == NONE
        found[missing] = everywhere.enclosing(np.zeros(int(missing.sum()), np.int64), at[missing])
        hit = found != NONE
        found[hit] = rows[found[hit]]
        return found

    @cached_property
    def range_edges(self) -> I64:
        """Starts and ends of the rank's own ranges."""
        mine = self.ranges[self.own_ranges]
        return np.concatenate([mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()])

    def path_of(self, row: int) -> tuple[str, ...]:
        """Texts of a range and the ranges around it, outermost first; the setup label and NCCL's are left out."""
        texts: list[str] = []
        own = self._is_own
        while row != NONE:
            if own[row]:
                texts.append(self.profile.names[int(self._range_name[row])])
            row = int(self._range_parent[row])
        return tuple(reversed(texts))

    @cached_property
    def _is_own(self) -> npt.NDArray[np.bool_]:
        own = np.zeros(self.ranges.height, dtype=bool)
        own[self.own_ranges] = True
        return own

    @cached_property
    def _range_name(self) -> npt.NDArray[np.uint32]:
        return self.ranges["name"].to_numpy()

    @cached_property
    def _range_parent(self) -> I64:
        return self.ranges["parent"].cast(pl.Int64).fill_null(NONE).to_numpy()

    def per_name(self, function: Callable[[pl.Series], I64]) -> I64:
        """`function` of the string table: judged once per name, not once per row."""
        return self.profile.once(_judged, function, len(self.profile.names))

    def ancestors_until(self, ranges: I64, wanted: npt.NDArray[np.bool_]) -> I64:
        """Climb from each range to the first, itself included, whose row `wanted` marks; NONE where there is none."""
        parent = self._range_parent
        at = ranges.copy()
        live = np.flatnonzero(at != NONE)
        while len(live):
            live = live[~wanted[at[live]]]
            at[live] = parent[at[live]]
            live = live[at[live] != NONE]
        return at

    def within(self, ops: I64, pattern: str) -> npt.NDArray[np.bool_]:
        """Whether each op was launched within a range, at any depth, whose text matches."""
        if self.ranges.height == 0:
            return np.zeros(len(ops), dtype=bool)
        wanted = self.profile.names.str.contains(pattern).to_numpy()[self._range_name] & self._is_own
        inside: npt.NDArray[np.bool_] = self.ancestors_until(self.enclosing(ops), wanted) != NONE
        return inside

    def lengths(self, lo: int, hi: int) -> I64:
        """Durations of all ops, cut at [lo, hi)."""
        cut: I64 = np.maximum(np.minimum(self.end, hi) - np.maximum(self.start, lo), 0)
        return cut

    def text_of(self, ranges: I64) -> pl.Series:
        """Texts of ranges, null for NONE."""
        hit = pl.Series(ranges != NONE)
        if self.ranges.height == 0:
            return pl.Series("text", [None] * len(ranges), dtype=pl.String)
        ids = self.ranges["name"].gather(np.maximum(ranges, 0))
        text = self.profile.names.gather(ids)
        return pl.select(pl.when(hit).then(text).alias("text")).to_series()

    def stage_of(self, ops: I64, pattern: str = STAGE) -> pl.Series:
        """Stage of each op: from its enclosing range up to the first name that matches; the last match in it counts."""
        if self.ranges.height == 0:
            return pl.Series("stage", [NO_STAGE] * len(ops), dtype=pl.String)
        stages, wanted = self.once(_stages, pattern, len(self.profile.names))
        at = self.ancestors_until(self.enclosing(ops), wanted)
        found = stages.gather(self.ranges["name"].gather(np.maximum(at, 0)))
        return pl.select(
            pl.when(pl.Series(at != NONE)).then(found).otherwise(pl.lit(NO_STAGE)).alias("stage")
        ).to_series()


def _anchor_ranges(data: RankData) -> pl.DataFrame:
    frame = data.ranges[data.own_ranges]
    return frame.with_columns(data.profile.names.gather(frame["name"]).alias("text")).filter(pl.col("closed"))


def _stages(data: RankData, pattern: str, names: int) -> tuple[pl.Series, npt.NDArray[np.bool_]]:
    """The stage that each name of the string table speaks of, and which ranges speak of any."""
    stages = data.profile.names.str.extract_all(pattern).list.last()
    return stages, stages.is_not_null().to_numpy()[data.ranges["name"].to_numpy()]

"""A profile: the ranks of one job, read from any number of sources, as tables that load when first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import budget, forks
from stepscope.intervals.arrays import NONE, Mask, look_up
from stepscope.model import door, label_rules, link, nesting, ranks, taxonomy
from stepscope.model.beginning import Extent, beginnings
from stepscope.model.columns import ROLE, Part
from stepscope.model.devices import DevicesApart
from stepscope.model.label_rules import LabelRules
from stepscope.model.memo import Memo
from stepscope.model.names import A, Names
from stepscope.model.note import Note, noted
from stepscope.model.program import ProgramSteps
from stepscope.model.schema import OPS, TABLES
from stepscope.model.source import Chunk, Source, SourceInfo
from stepscope.model.spill import gathered, joined, kept, kept_column

P = ParamSpec("P")
T = TypeVar("T")

#: Between two looks at the memory, for ranks by the thousand.
_LOOK_S = 0.02

#: What is said of so many parts is joined before the next are read: thousands of small tables take more than a large
#: one.
_AT_ONCE = 256


@dataclass(frozen=True)
class Known:
    """What all sources of a job say together: of some of them, another process is told."""

    ranks: pl.DataFrame
    recorded: frozenset[str]  # tables that any source has


class Renewable(Protocol):
    """A rank whose arrays can be derived again."""

    def let_go(self) -> None:
        """Forget arrays."""


class Profile:
    """All ranks of a job on one model. Tables are Polars frames, sorted by rank, then time (see docs/model.md)."""

    def __init__(
        self,
        sources: Sequence[Source],
        rules: taxonomy.Taxonomy | None = None,
        labels: LabelRules | None = None,
        known: Known | None = None,
    ) -> None:
        self._sources: list[Source] = [DevicesApart(door.admitted(s)) for s in sources]
        self._rules = rules or taxonomy.default()
        #: What the trainer calls its ranges.
        self.labels = labels or label_rules.default()
        self._names = Names()
        self._tables: dict[tuple[str, Part], pl.DataFrame] = {}
        self._memo = Memo()
        self._reading = RLock()
        #: Questions share what they derive: one at a time, whichever thread asks.
        self.asking = RLock()
        #: By source: from its first to its last GPU op; None without any. Shared by all views and parts.
        self._extents: dict[int, Extent | None] = {}
        #: Whether `map` is to take it as one part; and the profile that it is some ranks of, if that is in one part.
        self._in_one_part, self._of = False, None
        #: Ranks that hold arrays, the one that derived some last, and when it was last seen whether they fit.
        self._ranks_at_work: WeakSet[Renewable] = WeakSet()
        self._latest: Renewable | None = None
        self._looked_at = 0.0
        notes: list[Note] = []
        if known is None:
            table, notes = ranks.assign(self._sources)
            # Asked once: of ten thousand sources, a question per rank would ask each of them.
            known = Known(table, frozenset(table for s in self._sources for table in s.tables()))
        self._known, self.ranks, self._notes = known, known.ranks, notes
        self.check()
        #: Ranks that a view was limited to.
        self.limited_to: list[int] | None = None

    _of: Profile | None

    # -- what was opened -----------------------------------------------------------------------------------------

    @property
    def sources(self) -> list[SourceInfo]:
        return [s.info for s in self._sources]

    def source_info(self, source: int) -> SourceInfo:
        """What one of the sources is."""
        return self._sources[source].info

    def source_path(self, source: int) -> Path:
        """Where one of the sources lies."""
        return self._sources[source].path

    def check(self) -> None:
        """`Changed` unless all files are those that were opened. Replaced one by one, they would be of two jobs."""
        for source in self._sources:
            source.check()

    @property
    def folders(self) -> list[Path]:
        """Where the sources lie: a capture has more beside its profiles."""
        return list(dict.fromkeys(s.path.parent for s in self._sources))

    @property
    def notes(self) -> list[Note]:
        """What was inferred, dropped or lost while reading; grows as tables are read."""
        several = len(self._sources) > 1
        own = [n.of(s.path.name) if several else n for s in self._sources for n in s.quality.notes]
        return [*self._notes, *dict.fromkeys(own)]

    def add_notes(self, notes: Iterable[Note]) -> None:
        """What whoever opened it has to say of it."""
        self._notes = [*self._notes, *notes]

    @property
    def unprofiled_step_ns(self) -> float | None:
        """Length of a step without the profiler, where whoever captured timed some."""
        return None

    @property
    def program_steps(self) -> ProgramSteps | None:
        """Every step of the program, recorded or not, where whoever captured timed them."""
        return None

    @property
    def compile_settings(self) -> list[dict[str, Any]]:
        """What the program asked of torch.compile, where whoever captured heard it."""
        return []

    def program_facts(self, rank: int) -> dict[str, Any]:
        """What the program of a rank had set in torch (`settings`) and the most memory that it took (`memory`), where
        whoever captured asked."""
        return {}

    @property
    def taxonomy(self) -> taxonomy.Taxonomy:
        """The rules that say what a kernel is."""
        return self._rules

    def has(self, table: str) -> bool:
        """Whether any source recorded this table at all: if not, a question about it has no answer."""
        return table in self._known.recorded

    @property
    def has_timeline(self) -> bool:
        """Whether any source recorded what ranks did; else all there is was measured apart, as by Nsight Compute."""
        return len(self.timeless_sources) < len(self._sources)

    @property
    def timeless_sources(self) -> list[int]:
        """Sources that are of no rank: what they measured holds for the ranks of the others."""
        return [i for i, s in enumerate(self._sources) if not ranks.has_timeline(s)]

    @property
    def names(self) -> pl.Series:
        """The string table: text by id. Grows as tables are read; ids never change."""
        return self._names.series()

    def per_name(self, function: Callable[[pl.Series], A]) -> A:
        """`function` of the string table, an entry per name: every name is judged once, whichever rank has it."""
        return self._names.judged(function, function)

    def names_with(self, pattern: str) -> Mask:
        """Which names match a regular expression."""
        return self._names.judged(("contains", pattern), lambda texts: texts.str.contains(pattern).to_numpy())

    def names_last(self, pattern: str) -> pl.Series:
        """The last match of a regular expression in each name; null where there is none."""
        return self._names.judged(("last", pattern), lambda texts: texts.str.extract_all(pattern).list.last())

    # -- tables --------------------------------------------------------------------------------------------------

    @property
    def ops(self) -> pl.DataFrame:
        return self.table("ops")

    @property
    def calls(self) -> pl.DataFrame:
        return self.table("calls")

    @property
    def ranges(self) -> pl.DataFrame:
        return self.table("ranges")

    @property
    def syncs(self) -> pl.DataFrame:
        return self.table("syncs")

    @property
    def counters(self) -> pl.DataFrame:
        return self.table("counters")

    @property
    def host(self) -> pl.DataFrame:
        return self.table("host")

    @property
    def comms(self) -> pl.DataFrame:
        return self.table("comms")

    def table(self, name: str, detail: bool = False) -> pl.DataFrame:
        """A table of the model; with `detail`, its rarely needed columns too."""
        core = self._part(name, "core")
        if not detail or not TABLES[name].has_detail():
            return core
        extra = self._part(name, "detail")
        return core.hstack(extra.drop([c for c in extra.columns if c in core.columns]))

    def by_rank(self, name: str, detail: bool = False) -> Iterator[tuple[int, pl.DataFrame]]:
        """The table cut into its ranks, every rank of the profile once, in order. Slices share memory."""
        frame = self.table(name, detail)
        for rank, (first, last) in self.bounds(frame):
            yield rank, frame[first:last]

    def bounds(self, frame: pl.DataFrame) -> Iterator[tuple[int, tuple[int, int]]]:
        """Of a table by rank: the first row of every rank of the profile, and the one behind its last."""
        return zip(self.rank_ids(), self._bounds(frame), strict=True)

    def launch_shapes(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """How the ops of each rank were launched: grids, blocks, registers and shared memory, by row of its ops."""
        frame = self._part("ops", "detail" if ("ops", "detail") in self._tables else "launch")
        for rank, (first, last) in self.bounds(frame):
            yield rank, frame[first:last]

    def rank_ids(self) -> list[int]:
        ids: list[int] = self.ranks["rank"].to_list()
        return ids

    def extents(self) -> dict[int, Extent]:
        """From the first to the last GPU op, by rank that has any, whichever ranks a view is limited to.

        Files that nobody has asked for ops yet are read for it.
        """
        for index in range(len(self._sources)):
            if index not in self._extents:
                timed = index not in self.timeless_sources and "ops" in self._sources[index].tables()
                self._extents[index] = _extent(self._sources[index].read("ops").frame) if timed else None
        known = {index: extent for index, extent in self._extents.items() if extent is not None}
        of_rank = self.ranks.select("rank", "source").iter_rows()
        return {rank: known[source] for rank, source in of_rank if source in known}

    def begins(self, *, reading: bool = True) -> dict[int, int]:
        """When the capture begins, by rank that has GPU ops; empty where that is not known without reading more."""
        if reading:
            self.extents()
        elif len(self._extents) + len(self.timeless_sources) < len(self._sources):
            return {}
        found = beginnings({index: extent for index, extent in self._extents.items() if extent is not None})
        return {r: found[s] for r, s in self.ranks.select("rank", "source").iter_rows() if s in found}

    # -- derived, and kept -----------------------------------------------------------------------------------------

    def once(self, function: Callable[Concatenate[Any, P], T], *args: P.args, **options: P.kwargs) -> T:
        """`function(profile, …)`, computed when first asked for and shared by every question of this profile."""
        return self._memo.once(function, self, *args, **options)

    def once_per_rank(self, function: Callable[[Profile, int], T], rank: int) -> T:
        """The same for one rank. Views of a profile in one part share what is known of a rank."""
        return self._of.once_per_rank(function, rank) if self._of is not None else self.once(function, rank)

    def at_work(self, rank: Renewable) -> None:
        """A rank is about to derive arrays. Where memory is tight, the others let go of theirs."""
        self._ranks_at_work.add(rank)
        if rank is self._latest or (now := monotonic()) - self._looked_at < _LOOK_S:
            return
        self._latest, self._looked_at = rank, now
        if budget.tight():
            for other in list(self._ranks_at_work):
                if other is not rank:
                    other.let_go()
            budget.give_back()

    def view(self, wanted: Iterable[int] | None = None, *, in_one_part: bool = False) -> Profile:
        """The same profile, with some of its ranks, or in one part.

        In one part, tables stay once they are read, and what is derived from a rank is shared with its views: for
        those who come back to a rank again and again. Otherwise a view is as good as new.
        """
        view = copy(self)
        view._in_one_part = self._in_one_part or in_one_part
        if wanted is None or (chosen := sorted(set(wanted))) == self.rank_ids():
            return view
        if missing := sorted(set(chosen) - set(self.rank_ids())):
            have = ", ".join(map(str, self.rank_ids()[:16]))
            raise BadInput(f"--rank: no rank {missing[0]} in this profile", f"it has {have}")
        view._limit(self, self.ranks.filter(pl.col("rank").is_in(chosen)))
        return view

    def _limit(self, whole: Profile, some: pl.DataFrame) -> None:
        """Make a copy of `whole` a view of some of its ranks."""
        self._memo = Memo()
        self.ranks, self.limited_to = some, some["rank"].to_list()
        self._of = whole if whole._in_one_part else None
        self._tables = {} if whole._in_one_part else {k: self._cut(f) for k, f in whole._tables.items()}

    def map(self, function: Callable[Concatenate[Any, P], T], *args: P.args, **options: P.kwargs) -> list[T]:
        """`function(part, …)` for each source's own part of the profile, in the order of the sources.

        Tables that a part reads are gone with it: a question over many ranks holds those of one source at a time. Where
        the profile was opened with workers, parts are read there; function and arguments must then be picklable.
        """
        by_source = self.by_source()
        if self._in_one_part or len(by_source) == 1:
            return [function(self, *args, **options)]
        found = list(self.of_parts(by_source, function, *args, **options))
        self.check()
        return found

    def gather(
        self,
        joined: Callable[[list[T]], T],
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **more: P.kwargs,
    ) -> T:
        """`joined` of what `function` says of each part. Workers join theirs first: few and large things travel.

        Joining must be associative, and keep the order.
        """
        by_source = self.by_source()
        if self._in_one_part or len(by_source) == 1:
            return joined([function(self, *args, **more)])
        found = self.of_parts(by_source, function, *args, **more)
        several = []
        while batch := list(islice(found, _AT_ONCE)):
            several.append(joined(batch))
        self.check()
        return joined(several)

    def of_parts(
        self,
        by_source: dict[int, pl.DataFrame],
        function: Callable[Concatenate[Any, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> Iterator[T]:
        """What `function` says of each source's own part of the profile, one after the other."""
        for done, some in enumerate(by_source.values(), 1):
            # No phase lasts while this generator waits: where its caller fails, it ends at any time and in any thread.
            with progress.phase(f"file {done} of {len(by_source)}"):
                part = copy(self)
                part._limit(self, some)
                found = function(part, *args, **options)
                for source in some["source"].unique().to_list():
                    door.forget(self._sources[source])
            yield found

    def by_source(self) -> dict[int, pl.DataFrame]:
        """The `ranks` table cut into the sources that hold them, in the order of the sources."""
        frames = self.ranks.sort("source", maintain_order=True).partition_by("source", maintain_order=True)
        return {frame["source"][0]: frame for frame in frames}

    # -- assembling ----------------------------------------------------------------------------------------------

    def _part(self, name: str, part: Part) -> pl.DataFrame:
        key = (name, part)
        forks.refuse()
        with self._reading:  # a server asks from several threads: the string table grows for one of them at a time
            if key not in self._tables and self._of is not None:
                self._tables[key] = self._cut(self._of._part(name, part))
            if key not in self._tables:
                frame = self._assemble(name, part)
                if part == "core" and name == "ops":
                    frame = self._with_launch(self._with_role(frame))
                elif part == "core" and name == "ranges":
                    frame = self._with_parent(frame)
                elif part != "core" and (core := self._tables.get((name, "core"))) is not None:
                    # What it was put in order by is in the core already, and takes memory.
                    frame = frame.drop([c for c in frame.columns if c in core.columns and c != "rank"])
                self._tables[key] = kept(frame)
            return self._tables[key]

    def _cut(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of the profile's own ranks."""
        if "rank" not in frame.columns:
            return frame
        slices = [frame[first:last] for first, last in self._bounds(frame) if first < last]  # sorted by rank
        return pl.concat(slices) if len(slices) > 1 else slices[0] if slices else frame.clear()

    def _assemble(self, name: str, part: Part) -> pl.DataFrame:
        """Read the part from every source, with `rank` for `proc` and global name ids."""
        if not TABLES[name].ranked:
            return self._gathered(name, part)
        frames = []
        for index, mine in progress.each(f"reading {name}, file", list(self.by_source().items())):
            chunk = self._sources[index].read(name, part)
            if name == "ops" and part == "core":
                self._extents.setdefault(index, _extent(chunk.frame))
            frames.append(kept(self._ranked(self._renamed(chunk, name), mine)))
        if not frames:
            raise BadInput("the profile has no ranks", "give a trace with GPU or host activity")
        if len(frames) > 1:
            self.check()
        frame = joined(frames) if len(frames) > 1 else frames[0]
        rank = frame["rank"].to_numpy()
        if np.any(rank[1:] < rank[:-1]):
            frame = gathered(frame, np.argsort(rank, kind="stable"))
        return frame

    def _gathered(self, name: str, part: Part) -> pl.DataFrame:
        """The same of a table that is of sources, not of ranks: `source` says of which."""
        frames = []
        for index, source in enumerate(self._sources):
            frame = self._renamed(source.read(name, part), name).drop("proc")
            frames.append(frame.with_columns(pl.lit(index, pl.Int32).alias("source")))
        self.check()
        return pl.concat(frames).select("source", pl.exclude("source"))

    def _ranked(self, frame: pl.DataFrame, mine: pl.DataFrame) -> pl.DataFrame:
        # One extra entry (-1) catches processes that are not ranks.
        rank_of = np.full(int(mine["proc"].to_numpy().max()) + 2, -1, dtype=np.int32)
        rank_of[mine["proc"].to_numpy()] = mine["rank"].to_numpy()
        rank = look_up(rank_of, frame["proc"].to_numpy())
        frame = frame.drop("proc").insert_column(0, kept_column(pl.Series("rank", rank)))
        return frame if (rank >= 0).all() else frame.filter(pl.col("rank") >= 0)

    def _renamed(self, chunk: Chunk, table: str) -> pl.DataFrame:
        ids = self._names.add(chunk.names)
        columns = [c for c in TABLES[table].name_ids() if c in chunk.frame.columns]
        if ids is None or not columns:
            return chunk.frame
        taken = (pl.Series(c, _take(ids, chunk.frame[c]), dtype=pl.UInt32) for c in columns)
        return chunk.frame.with_columns(map(kept_column, taken))

    # -- derived columns -----------------------------------------------------------------------------------------

    def _with_role(self, ops: pl.DataFrame) -> pl.DataFrame:
        comm = self.per_name(self._rules.is_comm).to_numpy() if len(self.names) else np.zeros(1, dtype=bool)
        named = pl.Series("named", comm[ops["name"].to_numpy()] if ops.height else [], dtype=pl.Boolean)
        kernel = pl.col("kind").is_in(["kernel", "graph"])
        return ops.with_columns(
            pl.when((kernel & named) | (pl.col("copy_kind") == "PtoP"))
            .then(pl.lit("comm", ROLE))
            .when(kernel)
            .then(pl.lit("compute", ROLE))
            .otherwise(pl.lit("copy", ROLE))
            .alias("role")
        )

    def _with_launch(self, ops: pl.DataFrame) -> pl.DataFrame:
        calls = self.calls
        call_id, op_id = (f["correlation"].fill_null(0).to_numpy() for f in (calls, ops))
        call_start, op_start = (f["start_ns"].to_numpy() for f in (calls, ops))
        call_end = calls["end_ns"].to_numpy()
        launch = np.empty(ops.height, dtype=np.uint32)
        for (o0, o1), (c0, c1), source in zip(
            self._bounds(ops), self._bounds(calls), self.ranks["source"].to_list(), strict=True
        ):
            linked = link.link(op_id[o0:o1], call_id[c0:c1])
            spans = call_start[c0:c1], call_end[c0:c1]
            linked, repeated = link.nearest(linked, op_id[o0:o1], op_start[o0:o1], call_id[c0:c1], spans)
            if repeated:
                self._sources[source].quality.note(noted("correlation-repeats", number=repeated))
            launch[o0:o1], early = link.without_early(linked, op_start[o0:o1], call_start[c0:c1])
            if early:
                self._sources[source].quality.note(noted("launch-too-late", number=early))
        column = pl.Series("launch", launch)
        return ops.with_columns(pl.when(column != link.NO_CALL).then(column).alias("launch")).select(
            [c.name for c in OPS if c.part == "core"]
        )

    def _with_parent(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Nest push/pop ranges per thread; start/end ranges may cross threads, and stay off the stack."""
        parent = np.full(ranges.height, NONE, dtype=np.int64)
        depth = np.zeros(ranges.height, dtype=np.int64)
        stacked = (ranges["kind"] == "pushpop").to_numpy()
        tid, start, end = (ranges[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
        for first, last in self._bounds(ranges):
            rows = np.flatnonzero(stacked[first:last])
            at = first + rows
            found = nesting.nest(tid[at], start[at], end[at])
            inside = found.parent != NONE
            parent[at[inside]] = rows[found.parent[inside]]
            depth[at] = found.depth()
        column = pl.Series("parent", parent)
        return ranges.with_columns(
            pl.when(column != NONE).then(column).cast(pl.UInt32).alias("parent"),
            pl.Series("depth", np.minimum(depth, np.iinfo(np.uint16).max)).cast(pl.UInt16),
        )

    def _bounds(self, frame: pl.DataFrame) -> list[tuple[int, int]]:
        """First and last row of every rank."""
        rank = frame["rank"].to_numpy()
        ids = np.array(self.rank_ids(), dtype=rank.dtype)
        first, last = np.searchsorted(rank, ids, side="left"), np.searchsorted(rank, ids, side="right")
        return list(zip(first.tolist(), last.tolist(), strict=True))


def _extent(ops: pl.DataFrame) -> Extent | None:
    """From the first to the last of these ops."""
    return (int(ops["start_ns"].min()), int(ops["end_ns"].max())) if ops.height else None  # type: ignore[arg-type]


def _take(ids: np.ndarray[tuple[int], np.dtype[np.uint32]], column: pl.Series) -> pl.Series:
    """`ids[column]`, nulls kept."""
    if column.null_count() == 0:
        return pl.Series(look_up(ids, column.to_numpy()))
    taken = pl.Series(look_up(ids, column.fill_null(0).to_numpy())) if len(ids) else column
    return pl.select(pl.when(column.is_not_null()).then(taken)).to_series()

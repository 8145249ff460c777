"""How tables of a profile come about: read from every source, put together by rank, with what is derived of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock

import numpy as np
import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import forks
from stepscope.intervals.arrays import NONE, look_up
from stepscope.model import link, nesting, ranks, taxonomy
from stepscope.model.beginning import Extent, beginnings
from stepscope.model.columns import ROLE, Part
from stepscope.model.names import A, Names
from stepscope.model.note import noted
from stepscope.model.schema import OPS, TABLES
from stepscope.model.source import Chunk, Source
from stepscope.model.spill import gathered, joined, kept, kept_column


class Assembled:
    """The part of a `Profile` that reads its tables; they stay once they are read."""

    ranks: pl.DataFrame
    _sources: list[Source]
    _rules: taxonomy.Taxonomy
    _names: Names
    _tables: dict[tuple[str, Part], pl.DataFrame]
    _reading: RLock
    _extents: dict[int, Extent | None]
    _of: Assembled | None

    def check(self) -> None:
        """`Changed` unless all files are those that were opened. Replaced one by one, they would be of two jobs."""
        for source in self._sources:
            source.check()

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

    def by_source(self) -> dict[int, pl.DataFrame]:
        """The `ranks` table cut into the sources that hold them, in the order of the sources."""
        frames = self.ranks.sort("source", maintain_order=True).partition_by("source", maintain_order=True)
        return {frame["source"][0]: frame for frame in frames}

    def extents(self) -> dict[int, Extent]:
        """From the first to the last GPU op, by rank that has any, whichever ranks a view is limited to.

        Files that nobody has asked for ops yet are read for it.
        """
        for index in range(len(self._sources)):
            if index not in self._extents:
                timed = index not in self.timeless_sources and "ops" in self._sources[index].tables()
                self._extents[index] = _extent(self._sources[index].read("ops").frame) if timed else None
        extents = {index: extent for index, extent in self._extents.items() if extent is not None}
        of_rank = self.ranks.select("rank", "source").iter_rows()
        return {rank: extents[source] for rank, source in of_rank if source in extents}

    def begins(self, *, reading: bool = True) -> dict[int, int]:
        """When the capture begins, by rank that has GPU ops; empty where that is not known without reading more."""
        if reading:
            self.extents()
        elif len(self._extents) + len(self.timeless_sources) < len(self._sources):
            return {}
        begins = beginnings({index: extent for index, extent in self._extents.items() if extent is not None})
        return {r: begins[s] for r, s in self.ranks.select("rank", "source").iter_rows() if s in begins}

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
            nested = nesting.nest(tid[at], start[at], end[at])
            inside = nested.parent != NONE
            parent[at[inside]] = rows[nested.parent[inside]]
            depth[at] = nested.depth()
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

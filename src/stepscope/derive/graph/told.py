"""Dependencies that the source itself tells: an op that waited, and one that had to be over first (`dependencies`).

Nodes of a CUDA graph wait for the nodes before them in the graph, whatever streams the profiler puts them on: streams
of a replay are the driver's choice. Nodes that wait for no other come after what those streams ran before the launch,
and what they run after it comes after all nodes. Other dependencies hold beside the order of streams, as events do.

Places are ranks of ops by their end, as in `dependencies`: the op that ends last has the highest.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.memo import cached_property
from stepscope.model.profile import Profile


class Told(Struct, frozen=True, dict=True):
    """Pairs of rows of ops, and which ops are nodes of graphs whose dependencies are told."""

    op: I64
    after: I64
    graph: Mask  # by pair
    launch: I64  # by op: which graph launch it is a node of, counted from 0; NONE for all others

    @cached_property
    def nodes(self) -> I64:
        return np.flatnonzero(self.launch != NONE)

    @cached_property
    def waited(self) -> Mask:
        """By op: whether it is told what it waited for."""
        waited = np.zeros(len(self.launch), dtype=bool)
        waited[self.op] = True
        return waited

    @property
    def beside_streams(self) -> bool:
        """Whether ops outside of graphs are told: then, as with records of events, the others did not wait."""
        return not self.graph.all()

    def whole(self, place: I64) -> I64:
        """Places of ops, and for a node the place of the node that ends last: who comes after one, comes after all."""
        last = self._most(place[self.nodes])
        places = place.copy()
        places[self.nodes] = last[self.launch[self.nodes]]
        return places

    def passed_on(self, before: I64, waited: I64, place: I64, stream: I64) -> tuple[I64, I64]:
        """The places that ops come after by their streams and by events, with what is told of them.

        To begin with, a node's are those of what its stream ran before it, nodes of the same launch among them: the
        lowest of a stream is from before the launch.
        """
        beside = ~self.graph
        waited = waited.copy()
        np.maximum.at(waited, self.op[beside], place[self.after[beside]])
        if not len(self.nodes):
            return before, waited
        before = before.copy()
        mine = pl.DataFrame({"launch": self.launch[self.nodes], "stream": stream[self.nodes]})
        first = mine.with_columns(before=before[self.nodes]).group_by("launch", "stream").agg(pl.col("before").min())
        outside = np.full(int(self.launch.max()) + 1, NONE, np.int64)
        np.maximum.at(outside, first["launch"].to_numpy(), first["before"].to_numpy())
        before[self.nodes] = outside[self.launch[self.nodes]]
        waited[self.nodes] = self._most(waited[self.nodes])[self.launch[self.nodes]]
        inner = self.op[self.graph]
        before[inner] = waited[inner] = NONE
        return before, waited

    def latest_two(self, place: I64, chosen: Mask) -> tuple[I64, I64]:
        """By op: of the chosen nodes that it waited for, the one that ends last, and the next; NONE without."""
        latest = np.full(len(self.launch), NONE, np.int64), np.full(len(self.launch), NONE, np.int64)
        pairs = np.flatnonzero(self.graph & chosen)
        pairs = pairs[np.lexsort((-place[self.after[pairs]], self.op[pairs]))]
        op, after = self.op[pairs], self.after[pairs]
        first = np.r_[True, op[1:] != op[:-1]] if len(op) else np.zeros(0, dtype=bool)
        second = np.r_[False, first[:-1]] & ~first if len(op) else first
        for k, mine in enumerate((first, second)):
            latest[k][op[mine]] = after[mine]
        return latest

    def _most(self, places: I64) -> I64:
        """Of the nodes of each launch, the highest place."""
        most = np.full(int(self.launch.max(initial=NONE)) + 1, NONE, np.int64)
        np.maximum.at(most, self.launch[self.nodes], places)
        return most


def told(data: RankData) -> Told:
    """What the source tells of this rank; computed once."""
    return data.once(_told)


def _told(data: RankData) -> Told:
    n = len(data.start)
    none = np.empty(0, np.int64)
    nothing = Told(none, none, np.empty(0, dtype=bool), np.broadcast_to(np.int64(NONE), n))
    if not data.profile.has("dependencies") or not data.dependencies.height:
        return nothing
    ids = data.profile.once(_ids)[data.rank]
    row_of_id = pl.DataFrame({"id": ids, "row": np.arange(n)}).drop_nulls().unique("id", keep="first")
    ends = ["op_id", "after_id"]
    pairs = data.dependencies.select(*ends, "kind").unique(ends, keep="first", maintain_order=True)
    for end in ends:
        pairs = pairs.join(row_of_id.rename({"id": end, "row": f"{end}_row"}), on=end, maintain_order="left")
    # Nothing waits for what started after it: where clocks, or a broken file, say so, there would be circles.
    pairs = pairs.filter(pl.col("after_id_row") < pl.col("op_id_row"))
    graph = (pairs["kind"] == "graph").to_numpy()
    op, after = (pairs[f"{end}_row"].to_numpy() for end in ends)
    if not len(op):
        return nothing
    correlation = data.ops["correlation"]
    launches = correlation.gather(np.unique(op[graph])).drop_nulls().unique().sort()
    number = pl.DataFrame({"correlation": launches, "launch": np.arange(len(launches))})
    launch = correlation.to_frame().join(number, on="correlation", how="left", maintain_order="left")["launch"]
    return Told(op, after, graph, launch.fill_null(NONE).to_numpy())


def _ids(profile: Profile) -> dict[int, pl.Series]:
    return {rank: ops["op_id"] for rank, ops in profile.by_rank("ops", detail=True)}

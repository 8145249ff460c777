"""The partition of a window, split by the hierarchy of ranges: each instant goes to one op, and so to one range.

Every nanosecond has one owner (see `owners`), so the top level sums to the window.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict, get_args

import numpy as np
import polars as pl

from stepscope.derive.accounting.owners import owners
from stepscope.derive.accounting.partition import Partition
from stepscope.derive.accounting.places import NO_RANGE, Places, by_depth, places_of
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.nesting import depths
from stepscope.model.profile import Profile


class TreeRow(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    depth: Annotated[int, "depth in the hierarchy, 0 at the top"]
    path: Annotated[str, "texts of the ranges from the top, joined by ` > `"]
    range: Annotated[str, "text of the range; (no range) for what was launched outside any"]
    total_ns: Annotated[int, "time that belongs to it and to the ranges in it"]
    compute_ns: Annotated[int, "a compute kernel runs"]
    comm_exposed_ns: Annotated[int, "else, communication runs"]
    copy_exposed_ns: Annotated[int, "else, a copy or memset runs"]
    idle_ns: Annotated[int, "nothing runs"]


Part = Literal["compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns"]
#: The parts of every row, which sum to its time.
PARTS: tuple[Part, ...] = get_args(Part)


def tree_rows(profile: Profile, data: RankData, span: Window, parts: Partition) -> list[TreeRow]:
    """Rows of the tree, depth first, the largest child first."""
    place, places = data.once(_places)
    count = len(places.parent)
    index = np.full(data.ranges.height + 1, NONE, dtype=np.int64)  # what is in no range is at the last place of all
    index[data.own_ranges] = np.arange(len(data.own_ranges))
    total = np.zeros((count, len(PARTS)), np.int64)
    there = np.zeros(count, dtype=bool)
    for column, (ops, _, length) in enumerate(owners(data, parts)):
        ranges = np.full(len(ops), NONE, dtype=np.int64)
        ranges[ops != NONE] = data.enclosing(ops[ops != NONE])
        at = place[index[ranges]]
        np.add.at(total[:, column], at, length)
        there[at] = True
    for level in reversed(by_depth(places.depth)[1:]):
        up = places.parent[level]
        np.add.at(total, up, total[level])
        there[up[there[level]]] = True
    sums = total.sum(axis=1)
    order = np.argsort(places.order(sums))
    paths = data.once(_paths)
    return [
        {
            "rank": data.rank,
            "pid": data.pid,
            "depth": int(places.depth[at]),
            "path": paths[at],
            "range": places.texts[at],
            "total_ns": int(sums[at]),
            "compute_ns": int(total[at, 0]),
            "comm_exposed_ns": int(total[at, 1]),
            "copy_exposed_ns": int(total[at, 2]),
            "idle_ns": int(total[at, 3]),
        }
        for at in order[there[order]].tolist()
    ]


def _places(data: RankData) -> tuple[I64, Places]:
    """The place of each own range, and at the end that of what is in none."""
    rows = data.own_ranges
    ids, name = np.unique(data.ranges["name"].to_numpy()[rows], return_inverse=True)
    names = pl.concat([data.profile.names.gather(ids), pl.Series([NO_RANGE])])
    parent = np.append(data.own_parents, NONE)
    return places_of(parent, depths(parent), np.append(name.reshape(-1), len(ids)), names)


def _paths(data: RankData) -> list[str]:
    return data.once(_places)[1].paths()

"""Which axis a communicator serves: by the setup labels, by its name, or by what it carries."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from stepscope.derive.comm.communicators import AXIS_OF, Communicator
from stepscope.derive.comm.kinds import ALL_TO_ALL, SEND_RECV
from stepscope.derive.comm.purpose import GROUP_WORDS
from stepscope.model.labels import axis_sizes, label_groups, setups

WORLD = "world"


@dataclass(frozen=True)
class Axis:
    """An axis, and how it is known: `labels`, `name`, `ranges` or `communication`."""

    name: str
    known_by: str


def axes_of(communicators: dict[str, Communicator], meetings: pl.DataFrame, ranks: pl.DataFrame) -> dict[str, Axis]:
    """The axis of each communicator, where anything tells. Several may serve one axis, and one several."""
    labels = setups(ranks)
    groups = {axis: label_groups(labels, axis) for axis in sorted(axis_sizes(labels))}
    told = meetings.group_by("communicator").agg(
        pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String).drop_nulls().unique(),
        pl.col("kind").unique(),
    )
    carried = {c: (set(purposes), set(kinds)) for c, purposes, kinds in told.iter_rows()}
    world = max([ranks.height, *ranks["world_size"].drop_nulls().to_list()])
    found: dict[str, Axis] = {}
    for text, comm in communicators.items():
        purposes, kinds = carried.get(text, (set(), set()))
        axis = _axis(comm, purposes if labels else set(), kinds, groups, world)
        if axis is not None:
            found[text] = axis
    return found


def _axis(
    comm: Communicator,
    purposes: set[str],
    kinds: set[str],
    groups: dict[str, list[tuple[int, ...]]],
    world: int,
) -> Axis | None:
    if comm.known_by == "labels" and comm.name:
        return Axis(comm.name, "labels")
    fitting = [
        axis
        for axis, found in groups.items()
        if comm.size == len(comm.members) and any(set(g) == set(comm.members) for g in found)
    ]
    if len(fitting) == 1:
        return Axis(fitting[0], "labels")
    if len(purposes & set(fitting)) == 1:
        return Axis((purposes & set(fitting)).pop(), "labels")
    if comm.name and (named := _named(comm.name)):
        return Axis(named, "name")
    if comm.size is not None and comm.size >= world > 1:
        return Axis(WORLD, "communication")
    if len(purposes) == 1:
        return Axis(purposes.pop(), "ranges")
    if kinds == {SEND_RECV}:
        return Axis("pp", "communication")
    return Axis("ep", "communication") if kinds == {ALL_TO_ALL} else None


def _named(name: str) -> str | None:
    """The axes that a group's name speaks of: `mesh_dp+ep` is both."""
    lower = name.lower()
    found = [a for a, words in GROUP_WORDS.items() if re.search(rf"(^|[^a-z])({'|'.join(words)})([^a-z]|$)", lower)]
    return "+".join(sorted(found)) if found else None


def pipelines(meetings: pl.DataFrame) -> list[tuple[int, ...]]:
    """Chains of ranks that exchange transfers: who is connected to whom."""
    pairs = meetings.filter(pl.col("src") >= 0).select("src", "dst").unique().rows()
    group: dict[int, set[int]] = {}
    for a, b in pairs:
        joined = group.get(a, {a}) | group.get(b, {b})
        for rank in joined:
            group[rank] = joined
    return sorted({tuple(sorted(g)) for g in group.values()})

"""Which axis a communicator serves: by the setup labels, by its name, or by what it carries.

The one place that reads axes out of names, and that says which purpose belongs to which axis.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct

from stepscope.derive.comm.kinds import ALL_TO_ALL, SEND_RECV
from stepscope.model.labels import axis_sizes, label_groups, setups

if TYPE_CHECKING:
    from stepscope.derive.comm.communicators import Communicator

WORLD = "world"
#: Axis that a purpose serves.
AXIS_OF = {"ep_a2a": "ep", "ep_meta": "ep", "cp_ring": "cp", "pp_p2p": "pp", "tp": "tp", "dp": "dp"}
AXIS_OF |= {"dp_grads": "dp", "dp_params": "dp"}
#: What communication along an axis is for, as far as the axis alone tells.
PURPOSE_OF = {"ep": "ep_a2a", "pp": "pp_p2p", "cp": "cp_ring", "tp": "tp", "dp": "dp"}
#: What frameworks call the groups of an axis: whole words of the group's name.
_WORDS = {
    "ep": ("ep", "expert", "moe"),
    "pp": ("pp", "pipeline", "pipe"),
    "cp": ("cp", "context"),
    "tp": ("tp", "tensor"),
    "dp": ("dp", "data", "ddp", "fsdp", "hsdp"),
}
_PATTERNS = {axis: re.compile(rf"(^|[^a-z])({'|'.join(words)})([^a-z]|$)") for axis, words in _WORDS.items()}
#: Axes over which gradients are reduced.
_DATA_AXES = {"dp", "cp", "ep"}


class Axis(Struct, frozen=True):
    """An axis, and how it is known: `labels`, `name`, `ranges` or `communication`."""

    name: str
    known_by: str


def axes_of(communicators: dict[str, Communicator], meetings: pl.DataFrame, ranks: pl.DataFrame) -> dict[str, Axis]:
    """The axis of each communicator, where anything tells. Several may serve one axis, and one several."""
    labels = setups(ranks)
    groups = {axis: label_groups(labels, axis) for axis in sorted(axis_sizes(labels))}
    by_purpose = meetings.group_by("communicator").agg(
        pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String).drop_nulls().unique(),
        pl.col("kind").unique(),
    )
    carried = {c: (set(purposes), set(kinds)) for c, purposes, kinds in by_purpose.iter_rows()}
    world = max([ranks.height, *ranks["world_size"].drop_nulls().to_list()])
    axes: dict[str, Axis] = {}
    for text, comm in communicators.items():
        purposes, kinds = carried.get(text, (set(), set()))
        axis = _axis(comm, purposes if labels else set(), kinds, groups, world)
        if axis is not None:
            axes[text] = axis
    return axes


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
        for axis, members in groups.items()
        if comm.size == len(comm.members) and any(set(g) == set(comm.members) for g in members)
    ]
    if len(fitting) == 1:
        return Axis(fitting[0], "labels")
    if len(purposes & set(fitting)) == 1:
        return Axis((purposes & set(fitting)).pop(), "labels")
    if comm.name and (named := named_axes(comm.name)):
        return Axis("+".join(named), "name")
    if comm.size is not None and comm.size >= world > 1:
        return Axis(WORLD, "communication")
    if len(purposes) == 1:
        return Axis(purposes.pop(), "ranges")
    if kinds == {SEND_RECV}:
        return Axis("pp", "communication")
    return Axis("ep", "communication") if kinds == {ALL_TO_ALL} else None


@cache
def named_axes(name: str) -> tuple[str, ...]:
    """The axes that a group's name speaks of, sorted: `mesh_dp+ep` is both."""
    return tuple(sorted(axis for axis, pattern in _PATTERNS.items() if pattern.search(name.lower())))


def purpose_by_name(name: str) -> str | None:
    """What a group is for by its name; nothing where that speaks of several axes, unless one is dp.

    A group over data and other axes (`dp_cp`, `EXPERT_DATA_PARALLEL_GROUP`) keeps replicas in step.
    """
    axes = named_axes(name)
    if "dp" in axes:
        return PURPOSE_OF["dp"]
    return PURPOSE_OF[axes[0]] if len(axes) == 1 else None


def gradient_groups(communicators: dict[str, Communicator], ranks: pl.DataFrame) -> set[str]:
    """Communicators that reduce gradients: by name, or as their members differ in data-parallel coordinates alone."""
    labels = setups(ranks)
    chosen = set()
    for text, comm in communicators.items():
        members = [labels[r] for r in comm.members if r in labels]
        axes = {axis for setup in members for axis in setup.axes}
        differ = {axis for axis in axes if len({setup.axes.get(axis) for setup in members}) > 1}
        if "dp" in named_axes(comm.name or "") or (len(members) > 1 and bool(differ) and differ <= _DATA_AXES):
            chosen.add(text)
    return chosen


def pipelines(meetings: pl.DataFrame) -> list[tuple[int, ...]]:
    """Chains of ranks that exchange transfers: who is connected to whom."""
    pairs = meetings.filter(pl.col("src") >= 0).select("src", "dst").unique().rows()
    group: dict[int, set[int]] = {}
    for a, b in pairs:
        joined = group.get(a, {a}) | group.get(b, {b})
        for rank in joined:
            group[rank] = joined
    return sorted({tuple(sorted(g)) for g in group.values()})

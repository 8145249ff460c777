"""Which processes form which TP, PP, DP, EP or CP group, and how is that known?

A row is a group. Its ranks come from the setup labels, from the communicators of torch or NCCL, or, last, from who
communicates with whom; its axis from labels, from the name that the framework gave it, from the ranges that its
communication was launched in, or from the operations that it carries. Groups that two sources agree on are one row.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import polars as pl

from stepscope.derive.comm.across import Across, Align, across
from stepscope.derive.comm.axes import WORLD, axes_of, pipelines
from stepscope.derive.comm.communicators import missing_ranks
from stepscope.derive.comm.kinds import SEND_RECV
from stepscope.errors import CannotAnswer
from stepscope.model.labels import axis_sizes, label_groups, setups
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Result, rows

ACROSS = True


class Row(TypedDict):
    axis: Annotated[str | None, "tp, pp, dp, ep, cp, several joined by +, world; null where nothing tells"]
    ranks: Annotated[str, "its ranks"]
    size: Annotated[int | None, "ranks it has; null where nothing tells"]
    present: Annotated[int, "ranks of it that the profile holds"]
    hosts: Annotated[int, "hosts they are on"]
    group: Annotated[str | None, "its communicators, as the trace names them"]
    ops: Annotated[str | None, "what it carries"]
    n: Annotated[int, "communications matched"]
    known_by: Annotated[str, "how its ranks are known: labels, metadata, payload, order or communication"]
    axis_by: Annotated[str | None, "how its axis is known: labels, name, ranges or communication"]


def mesh(profile: Profile, *, align: Align = "auto") -> Result:
    ranks = profile.ranks
    groups = _labelled(ranks)
    notes: list[Note] = []
    try:
        met = across(profile, align)
        notes += met.notes
        _add_communicators(groups, met)
    except CannotAnswer as error:
        if not groups:
            raise
        notes += [
            *missing_ranks(ranks),
            noted("mesh-by-labels-alone", why=error.message),
        ]
    table = [_row(key[0], members, about, ranks) for (key, members), about in _sorted(groups)]
    axes = {row["axis"]: 0 for row in table if row["axis"]}
    for row in table:
        if row["axis"]:
            axes[row["axis"]] = max(axes[row["axis"]], row["size"] or row["present"])
    return Result(rows(Row, table), summary={"ranks": ranks.height, "axes": axes}, notes=notes)


_Groups = dict[tuple[tuple[str], tuple[int, ...]], dict[str, Any]]


def _about(size: int | None) -> dict[str, Any]:
    return {"size": size, "group": [], "ops": set(), "n": 0, "known_by": [], "axis_by": None}


def _labelled(ranks: pl.DataFrame) -> _Groups:
    labels = setups(ranks)
    groups: _Groups = {}
    for axis, size in axis_sizes(labels).items():
        for members in label_groups(labels, axis):
            about = groups[((axis,), members)] = _about(size)
            about["known_by"].append("labels")
            about["axis_by"] = "labels"
    return groups


def _add_communicators(groups: _Groups, a: Across) -> None:
    axes = axes_of(a.matched.communicators, a.meetings, a.ranks)
    counts = a.meetings.group_by("communicator").agg(pl.len(), pl.col("kind").unique())
    used = {c: (n, set(kinds)) for c, n, kinds in counts.iter_rows()}
    for text, comm in a.matched.communicators.items():
        n, kinds = used.get(text, (0, set()))
        axis = axes.get(text)
        key = ((axis.name if axis else "",), tuple(sorted(comm.members)))
        same = next((k for k in groups if k[0] == key[0] and set(k[1]) == set(key[1])), key)
        about = groups.setdefault(same, _about(comm.size))
        if comm.label not in about["group"]:
            about["group"].append(comm.label)
        about["ops"] |= kinds
        about["n"] += n
        if comm.known_by not in about["known_by"]:
            about["known_by"].append(comm.known_by)
        about["axis_by"] = about["axis_by"] or (axis.known_by if axis else None)
    _add_pipelines(groups, a)


def _add_pipelines(groups: _Groups, a: Across) -> None:
    """Pairs that exchange transfers in a wider communicator: they confirm the pipeline of the labels, or are one."""
    transfers = a.meetings.filter((pl.col("kind") == SEND_RECV) & (pl.col("src") >= 0))
    labelled = any(axis == ("pp",) for axis, _ in groups)
    for members in pipelines(transfers):
        same = next((k for k in groups if set(k[1]) == set(members) and k[0] in (("pp",), ("cp",))), None)
        if same is None and (labelled or members in [k[1] for k in groups]):
            continue
        about = groups.setdefault(same or (("pp",), members), _about(len(members)))
        if not about["n"]:
            about["n"] = transfers.filter(pl.col("src").is_in(members)).height
            about["ops"].add(SEND_RECV)
        if "communication" not in about["known_by"]:
            about["known_by"].append("communication")
        about["axis_by"] = about["axis_by"] or "communication"


def _sorted(groups: _Groups) -> list[tuple[tuple[tuple[str], tuple[int, ...]], dict[str, Any]]]:
    """Named axes first, the world last."""
    order = {WORLD: 2, "": 1}
    return sorted(groups.items(), key=lambda item: (order.get(item[0][0][0], 0), item[0]))


def _row(axis: str, members: tuple[int, ...], about: dict[str, Any], ranks: pl.DataFrame) -> dict[str, Any]:
    present = ranks.filter(pl.col("rank").is_in(members))
    return {
        "axis": axis or None,
        "ranks": ranks_text(members),
        "size": about["size"],
        "present": present.height,
        "hosts": present["host"].n_unique(),
        "group": ", ".join(about["group"]) or None,
        "ops": ", ".join(sorted(about["ops"])) or None,
        "n": about["n"],
        "known_by": ", ".join(about["known_by"]),
        "axis_by": about["axis_by"],
    }

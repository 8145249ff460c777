"""Who is in which communicator: as the source lists it, as NCCL numbered it, or as the setup labels say."""

from __future__ import annotations

import json
import re
from math import prod

import polars as pl
from msgspec import Struct

from stepscope.derive.comm.axes import AXIS_OF
from stepscope.model.labels import Setup, axis_sizes, label_groups, setups
from stepscope.model.note import Note, noted
from stepscope.model.ranks import some_ranks

_HASH = re.compile("0x[0-9a-f]{1,16}")


class Communicator(Struct, frozen=True):
    """A communicator over all ranks of the profile. `members` are global ranks in communicator order, where known."""

    id: str
    label: str  # how to show it
    members: tuple[int, ...]
    size: int | None  # ranks it has, of which the profile may lack some; None where nothing tells
    numbering: dict[int, int]  # communicator rank -> global rank
    known_by: str
    name: str | None = None  # what the framework calls it


def communicators(groups: pl.DataFrame, sides: pl.DataFrame, ranks: pl.DataFrame) -> dict[str, Communicator]:
    """All communicators, from what the ranks say (`calls.GROUPS`) and from who used them.

    NCCL states a size only where it makes a communicator. Without, it has the ranks that used it, if the profile lacks
    none of the job's, or they are a whole group of the setup labels, of the axis that ranges say it serves; else nobody
    knows.
    """
    whole = None if not missing_ranks(ranks) else _whole_groups(setups(ranks))
    used = (
        sides.drop_nulls("communicator")
        .group_by("communicator")
        .agg(
            pl.col("rank").unique().sort(),
            pl.col("peer").filter(pl.col("send").is_not_null()).max().alias("peer"),
            pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String).unique().alias("axes"),
        )
    )
    seen = {c: (users, peer, axes) for c, users, peer, axes in used.iter_rows()}
    members_of = groups.group_by("communicator", maintain_order=True).agg(
        pl.col("rank"),
        pl.col("comm_rank"),
        pl.col("comm_size").max(),
        pl.col("members").drop_nulls().unique(maintain_order=True),
        pl.col("name").drop_nulls().first(),
        pl.col("known_by").first(),
    )
    made: dict[str, Communicator] = {}
    for text, members, numbers, size, lists, name, known_by in members_of.iter_rows():
        users, peer, axes = seen.get(text, (sorted(set(members)), None, []))
        if size is None and (whole is None or (len(axes) == 1 and (axes[0], frozenset(users)) in whole)):
            size = len(set(users) | set(members))
        made[text] = _communicator(text, users, peer, members, numbers, size, lists, name, known_by)
    return made


def _whole_groups(labels: dict[int, Setup]) -> set[tuple[str, frozenset[int]]]:
    """Groups of the setup labels that have all their members, with their axis."""
    sizes = axis_sizes(labels).items()
    return {(axis, frozenset(g)) for axis, n in sizes for g in label_groups(labels, axis) if len(g) == n}


def _communicator(
    text: str,
    users: list[int],
    peer: int | None,
    ranks: list[int],
    numbers: list[int | None],
    size: int | None,
    lists: list[str],
    name: str | None,
    known_by: str,
) -> Communicator:
    label = text.split(" [")[0] + (f" {name}" if name else "")
    if _HASH.fullmatch(text):
        label = f"0x{int(text, 16):016x}"  # all as long as NCCL's hash is
    for listed in lists:
        members = _listed(listed)
        if members and (size is None or len(members) == size):
            # Peers are communicator ranks, but some versions of torch write global ranks: those exceed the size.
            wide = peer is not None and peer >= len(members)
            numbering = {m: m for m in members} if wide else dict(enumerate(members))
            return Communicator(text, label, members, len(members), numbering, known_by, name)
    given = {n: r for r, n in zip(ranks, numbers, strict=True) if n is not None}
    everyone = tuple(sorted({*users, *ranks}))
    size = None if size is None else max(size, len(everyone))
    if len(given) == len(everyone):
        return Communicator(text, label, tuple(given[n] for n in sorted(given)), size, given, known_by, name)
    # No rank says which number it has: frameworks number in the order of global ranks, if nobody is missing.
    complete = size == len(everyone) and (peer is None or peer < size)
    return Communicator(text, label, everyone, size, dict(enumerate(everyone)) if complete else {}, known_by, name)


def _listed(text: str) -> tuple[int, ...]:
    try:
        listed = json.loads(text)
    except ValueError:
        return ()
    return tuple(listed) if isinstance(listed, list) and all(isinstance(r, int) for r in listed) else ()


def missing_ranks(ranks: pl.DataFrame) -> list[Note]:
    """Notes on ranks of the job that the profile does not hold."""
    have = set(ranks["rank"].to_list())
    world: int = max([*ranks["world_size"].drop_nulls().to_list(), max(have) + 1])
    gone = set(range(world)) - have
    if gone:
        return [noted("ranks-missing", number=len(gone), world=world, some=some_ranks(gone))]
    labels = setups(ranks)
    product = prod(axis_sizes(labels).values())
    if labels and product > len(have):
        return [noted("ranks-missing/by-labels", labelled=product, here=len(have))]
    return []

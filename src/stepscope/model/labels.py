"""The trainer's setup label: `rank=N; pp=R/S dp=R/S cp=R/S ep=R/S; mbs=M seq=Q`, with any further axes and pairs.

One label says where a rank stands on every axis; the labels of all ranks say which of them form a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

_LABEL = re.compile(r"^\s*rank=([0-9]{1,9})\s*;")
_AXIS = re.compile(r"\b(\w+)=([0-9]{1,9})/([0-9]{1,9})(?![0-9])")
_PAIR = re.compile(r"\b(\w+)=([^\s;]+)")

#: For filters over many texts: what every setup label starts with.
SETUP_PATTERN = r"^\s*rank=[0-9]{1,9}\s*;"


@dataclass(frozen=True)
class Setup:
    """A parsed setup label. `axes` maps an axis to (coordinate, size); `extra` keeps every other pair as text."""

    rank: int
    axes: dict[str, tuple[int, int]] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)

    def at(self, axis: str) -> int:
        """Coordinate on an axis; 0 where the label does not name it."""
        return self.axes.get(axis, (0, 1))[0]

    def size(self, axis: str) -> int:
        """Size of an axis; 1 where the label does not name it."""
        return self.axes.get(axis, (0, 1))[1]


def parse_setup(text: str) -> Setup | None:
    """The setup that `text` declares, or None where it is not a setup label.

    A coordinate that is not below the size of its axis is not a coordinate: such a pair is an extra.
    """
    match = _LABEL.match(text)
    if match is None:
        return None
    axes = {axis: (int(at), int(size)) for axis, at, size in _AXIS.findall(text) if int(at) < int(size)}
    extra = {k: v for k, v in _PAIR.findall(text) if k != "rank" and k not in axes}
    return Setup(int(match.group(1)), axes, extra)


def no_axes(text: str) -> list[str]:
    """Pairs of a label that look like axes, and cannot be: `pp=5/2`."""
    return [f"{axis}={at}/{size}" for axis, at, size in _AXIS.findall(text) if int(at) >= int(size)]


def setups(ranks: pl.DataFrame) -> dict[int, Setup]:
    """The setup label of every rank that has one, from a profile's `ranks`."""
    rows = ranks.select("rank", "setup").drop_nulls().iter_rows()
    return {rank: setup for rank, text in rows if (setup := parse_setup(text)) is not None}


def axis_sizes(labels: Mapping[int, Setup]) -> dict[str, int]:
    """The axes that have more than one coordinate, with their sizes."""
    return {axis: n for setup in labels.values() for axis, (_, n) in setup.axes.items() if n > 1}


def label_groups(labels: Mapping[int, Setup], axis: str) -> list[tuple[int, ...]]:
    """Groups of ranks along an axis, by coordinate; none where the labels do not give whole ones.

    Members differ in that axis alone; or, where coordinates of ep and dp overlap, in those two. A group counts if its
    coordinates are distinct; it is whole if all are there, and shorter where ranks are missing.
    """
    divided = {rank: setup for rank, setup in labels.items() if setup.size(axis) > 1}
    for free in ({axis}, {axis, "dp"}, {axis, "ep"}):
        members: dict[tuple[tuple[str, int], ...], list[int]] = {}
        for rank, setup in sorted(divided.items()):
            key = tuple((a, at) for a, (at, _) in sorted(setup.axes.items()) if a not in free)
            members.setdefault(key, []).append(rank)
        groups = [tuple(sorted(g, key=lambda r: divided[r].at(axis))) for g in members.values()]
        distinct = all(len({divided[r].at(axis) for r in g}) == len(g) for g in groups)
        if distinct and any(len(g) > 1 for g in groups):
            return sorted(groups)
    return []

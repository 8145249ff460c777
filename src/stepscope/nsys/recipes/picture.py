"""Pictures as data: what `html.svg` draws. Nothing here knows how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Number = float | int | None


@dataclass(frozen=True)
class HeatMap:
    """One line per row (a rank and device), one cell per bin; values in percent."""

    title: str
    rows: Sequence[str]
    values: Sequence[Sequence[Number]]
    start_ns: int
    end_ns: int
    unit: str = "%"


@dataclass(frozen=True)
class Lines:
    """One line per series: (label, x, y). Axes are named with the unit of their values: `_ns` counts time."""

    title: str
    x: str
    y: str
    series: Sequence[tuple[str, Sequence[Number], Sequence[Number]]]


@dataclass(frozen=True)
class Bars:
    """One bar per label; `detail` is shown when pointed at."""

    title: str
    labels: Sequence[str]
    values: Sequence[Number]
    unit: str
    detail: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Histogram:
    """Counts between edges, one outline per series."""

    title: str
    x: str
    edges: Sequence[float]
    series: Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True)
class Tree:
    """Rows of a tree, top down: (depth, label, start of its bar and length of it as parts of the whole, detail)."""

    title: str
    rows: Sequence[tuple[int, str, float, float, str]]


Picture = HeatMap | Lines | Bars | Histogram | Tree

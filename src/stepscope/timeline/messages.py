"""What a timeline is drawn from, by the page of a report and by that of a server. Times are drawn nanoseconds."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

Group = Literal["parts", "host", "ranges", "streams", "counters", "functions"]


class Kind(TypedDict):
    """A kind of mark."""

    colour: str
    part: Annotated[str | None, "what a part of a rank's time is called, which has no name of its own"]


class Place(TypedDict):
    """A moment that a finding names, as it is drawn."""

    rank: int
    stream: int | None
    start: int
    end: int


class Rank(TypedDict):
    """A rank, where it runs, and its place in the mesh."""

    rank: int
    host: str | None
    gpu: str | None
    place: str


class WindowSpan(TypedDict):
    start: int
    end: int
    label: str


class DrawnRank(Rank):
    """With a moment of its own clock, where that is drawn, and how many ns of that clock pass in one that is drawn."""

    own: Annotated[str, "own times have more digits than a double holds"]
    drawn: int
    rate: float
    windows: Annotated[list[WindowSpan], "of the other figures, where they are of a part of what is drawn"]


class LaneData(TypedDict):
    """A row: what it holds, and how many marks."""

    rank: int
    group: Group
    level: int
    label: str
    n: int
    most: NotRequired[Annotated[float, "the largest value of a counter"]]
    unit: NotRequired[Annotated[str, "its unit; empty where nothing says it"]]


class Step(TypedDict):
    label: str
    start: int
    end: int


class Drawing(TypedDict):
    """What is known of a timeline before its marks."""

    end: int
    ops: int
    kinds: list[Kind]
    families: list[str]
    ranks: list[DrawnRank]
    lanes: list[LaneData]
    steps: list[Step]


class Column(TypedDict):
    """Where a column of numbers lies in its block (timeline/pack.py)."""

    type: Literal["u1", "u2", "u4", "f8"]
    at: int
    n: int


class Columns(TypedDict):
    """Of marks: `busy` is 0 for a mark of its own, else the share of a bucket that is busy, of 255, and `name` is a
    family. Of a counter's mark, `n` is the largest value and `row` the least, of 65,535 parts of its largest."""

    start: Column
    dur: Column
    kind: Column
    name: Column
    n: Column
    busy: Column
    row: Column
    match: NotRequired[Annotated[Column, "of a server: whether it is searched for"]]
    range: NotRequired[Annotated[Column, "of a report: the range that launched it"]]
    stage: NotRequired[Annotated[Column, "and its stage"]]
    outside: NotRequired[Annotated[Column, "and whether it was launched outside the window"]]


class MarksData(TypedDict):
    """Marks of some lanes, as columns of a block."""

    rows: Annotated[list[tuple[int, int, int]], "lane, number of marks, start of the first"]
    columns: Columns

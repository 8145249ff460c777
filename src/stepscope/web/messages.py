"""What the server answers, declared once: `docs/page_messages.py` writes page/src/messages.ts from it.

Times are drawn nanoseconds of the profile.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from stepscope.report.messages.shared import NoteData, PartSums, RankSums
from stepscope.report.messages.step import Findings, Steps
from stepscope.timeline.messages import Drawing, MarksData


class ServedProfile(Drawing):
    """A whole profile."""

    source: str
    paths: list[str]
    notes: list[NoteData]


class SceneData(TypedDict):
    version: str
    command: Annotated[str, "what starts the server again"]
    profiles: list[ServedProfile]


# A class cannot have a field called `from`.
_Stretch = TypedDict("_Stretch", {"from": int, "to": int})


class BlockHead(MarksData, _Stretch):
    """The head of a block: what a view shows of some lanes."""

    texts: dict[str, str]


class End(TypedDict):
    """Where an arrow begins or ends."""

    rank: int
    stream: NotRequired[int]
    thread: NotRequired[int]
    at: int


ArrowData = TypedDict("ArrowData", {"kind": Literal["launch", "comm"], "from": End, "to": End})


class DetailsData(TypedDict):
    lane: int
    row: int
    rank: int
    start: int
    end: int
    name: str
    facts: Annotated[list[tuple[str, str, str]], "title, value, unit"]
    arrows: list[ArrowData]
    command: str


class OverlapSums(TypedDict):
    n: int
    comm_ns: int
    exposed_ns: int
    exposed_wall_ns: int
    barrier_ns: int


class SpanKernel(TypedDict):
    name: str
    family: str
    n: int
    total_ns: int
    max_ns: int


SpanData = TypedDict(
    "SpanData",
    {
        "from": int,
        "to": int,
        "ranks": list[RankSums],
        "sum": PartSums,
        "overlap": OverlapSums | None,
        "ops": int,
        "op_ns": int,
        "kernels": list[SpanKernel],
        "commands": list[str],
        "notes": list[str],
    },
)


class SearchName(TypedDict):
    name: str
    n: int
    total_ns: int
    longest_ns: int


class SearchData(TypedDict):
    error: str | None
    count: int
    ops: int
    total_ns: int
    names: list[SearchName]


class MatchData(TypedDict):
    k: int
    lane: int
    row: int
    rank: int
    start: int
    end: int


class Conclusion(TypedDict):
    ready: bool
    seconds: NotRequired[Annotated[float, "until it is: how long it has been worked on"]]
    doing: NotRequired[Annotated[str, "and on what"]]
    findings: NotRequired[Findings | None]
    why: NotRequired[str | None]
    steps: NotRequired[Annotated[Steps | None, "all steps of the run; null where there are not several"]]
    late: NotRequired[Annotated[dict[str, int], "by rank: how long the others waited for it"]]


class SqlData(TypedDict):
    columns: list[str]
    numbers: Annotated[list[bool], "by column: whether it has numbers"]
    rows: list[list[object]]
    places: Annotated[list[tuple[int, int, int] | None], "by row: rank, start and end on the timeline"]
    notes: list[str]
    command: str


class Alive(TypedDict):
    version: str

"""All that a report's page carries."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from stepscope.report.messages.further import Collectives, Memory, Peak, Pipeline, Roofline, Stragglers
from stepscope.report.messages.shared import NoteData, Part
from stepscope.report.messages.step import Breakdown, Compute, Findings, Overlap, Steps
from stepscope.timeline.messages import Drawing, MarksData, Rank


class TimelineContent(TypedDict):
    plain: Annotated[str, "the command without a window, to add one to"]
    drawing: Drawing
    marks: Annotated[MarksData, "of all lanes: columns of the page's block"]
    texts: Annotated[list[list[str]], "what fits into a box, and the whole where that is more"]
    left_out: list[str]


class TimelineData(Part, TimelineContent):
    pass


class Parts(TypedDict):
    breakdown: Breakdown
    steps: NotRequired[Steps]
    compute: NotRequired[Compute]
    overlap: NotRequired[Overlap]
    peak: NotRequired[Peak]
    memory: NotRequired[Memory]
    roofline: NotRequired[Roofline]
    collectives: NotRequired[Collectives]
    stragglers: NotRequired[Stragglers]
    pipeline: NotRequired[Pipeline]


class MissingPart(TypedDict):
    title: str
    why: str


class Report(TypedDict):
    """All of it (render/html/report.py)."""

    source: str
    command: str
    version: str
    ranks: list[Rank]
    findings: Findings | None
    parts: Parts
    timeline: TimelineData | None
    missing: list[MissingPart]
    notes: list[NoteData]

"""What the sections on the step get: findings, breakdown, steps, overlap, compute."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stepscope.report.messages.shared import Part, RankSums
from stepscope.timeline.messages import Place


class Finding(TypedDict):
    id: str
    title: str
    ranks: str | None
    recoverable_ns: int
    share_pct: float
    expected_ns: int
    cause: str
    evidence: str
    try_next: str
    command: str
    stage: str | None
    where: list[Place]
    recoverable_low_ns: int | None
    recoverable_high_ns: int | None


class Skipped(TypedDict):
    id: str
    why: str


class FindingsData(TypedDict):
    above: list[str]
    rows: list[Finding]
    statement: str | None
    step_ns: int | None
    mean_step_ns: int | None
    shares_of: str
    clean: bool
    skipped: list[Skipped]


class Findings(Part, FindingsData):
    pass


class BreakdownRow(RankSums):
    causes: dict[str, int]


class BreakdownData(TypedDict):
    causes: Annotated[list[tuple[str, str]], "causes of idle time and what they are called, as they are drawn"]
    rows: list[BreakdownRow]
    cause_command: str | None


class Breakdown(Part, BreakdownData):
    pass


class OverlapRow(TypedDict):
    key: str
    n: int
    comm_ns: int
    exposed_ns: int
    barrier_ns: int
    overlap_pct: float | None
    rank: list[int]
    each_pct: list[float | None]


class OverlapData(TypedDict):
    by: str
    rows: list[OverlapRow]


class Overlap(Part, OverlapData):
    pass


class StepRow(TypedDict):
    label: str
    index: int
    kind: str | None
    spike: bool
    cut: str | None
    step_ns: int
    between_ns: int
    compute_ns: int
    comm_exposed_ns: int
    copy_exposed_ns: int
    idle_ns: int


class StepsData(TypedDict):
    rows: list[StepRow]
    left_out: int
    statement: str
    look: Annotated[str, "the command that looks at one of them, without its index"]


class Steps(Part, StepsData):
    pass


class LossRow(TypedDict):
    loss: str
    what: str
    total_ns: int
    share_pct: float | None


class WorkGroup(TypedDict):
    part: str
    phase: str
    n: int
    total_ns: int
    share_pct: float | None
    good_ns: int
    good_from: str | None
    precision: str | None
    bound: str | None


class ComputeData(TypedDict):
    rows: list[LossRow]
    ranks: int
    groups: list[WorkGroup]
    left_out: int
    group_command: str
    statement: str


class Compute(Part, ComputeData):
    pass

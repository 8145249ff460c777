"""What the sections get that not every profile has: peak, memory, roofline, collectives, stragglers, pipeline."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from stepscope.report.messages.shared import Part


class PeakRow(TypedDict):
    rank: int
    window_ns: int
    model_flops: int
    hardware_flops: int | None
    mfu_pct: float | None
    hfu_pct: float | None
    achieved_tflops: float | None
    peak_tflops: float | None
    uncounted_pct: float | None


class PeakTerm(TypedDict):
    phase: str
    op: str
    shapes: str | None
    precision: str | None
    n: int
    share_pct: float | None
    gpu_ns: int | None
    peak_pct: float | None


class PeakData(TypedDict):
    rows: list[PeakRow]
    terms: list[PeakTerm]
    left_out: int
    term_command: str
    statement: str


class Peak(Part, PeakData):
    pass


class MemoryDevice(TypedDict):
    rank: int
    device: int
    phase: str
    reserved_bytes: int
    allocated_bytes: int
    parts: Annotated[list[tuple[str, str, int]], "name, colour, bytes"]


class MemoryFrame(TypedDict):
    part: str
    frame: str
    bytes: int
    share_pct: float
    blocks: int


class MemoryDrawn(TypedDict):
    rank: int
    device: int


class MemoryTime(TypedDict):
    start_ns: Annotated[list[int] | None, "null where the recording has no times"]
    reserved: list[int]
    parts: Annotated[list[tuple[str, str, list[int]]], "name, colour, bytes at each moment"]


class MemoryData(TypedDict):
    kinds: Annotated[
        list[tuple[str, str]], "parts of the ledger that are there, with their colours, from the bottom up"
    ]
    devices: list[MemoryDevice]
    left_out: int
    drawn: MemoryDrawn
    time: MemoryTime
    frames: list[MemoryFrame]
    frames_left_out: int
    frame_command: str
    time_command: str
    statement: str


class Memory(Part, MemoryData):
    pass


class Roof(TypedDict):
    roof: str
    peak_tflops: float | None
    bandwidth_gbps: float | None


class RooflineKernel(TypedDict):
    name: str
    n: int
    dur_ns: int | None
    bound: str | None
    why: str
    precision: str | None
    tflops: float | None
    intensity: float | None
    dram_pct: float | None
    roof: str | None
    roof_pct: float | None
    access: str | None
    stall: str | None
    ops: Annotated[int | None, "ops of the timeline that it stands for; null without a timeline"]
    matched: Annotated[str | None, "how they are known"]


class RooflineData(TypedDict):
    rows: list[RooflineKernel]
    left_out: int
    roofs: list[Roof]
    statement: str


class Roofline(Part, RooflineData):
    pass


class CollectivesRow(TypedDict):
    group: str | None
    op: str
    axis: str | None
    n: int
    ranks: str
    bytes: int | None
    transfer_ns: int | None
    max_wait_ns: int | None
    wait_ns: int | None
    busbw_p50_gbps: float | None


class CollectivesData(TypedDict):
    rows: list[CollectivesRow]
    left_out: int


class Collectives(Part, CollectivesData):
    pass


class StragglersRow(TypedDict):
    rank: int
    late_ns: int
    times_last: int
    share_pct: float
    cause: str | None
    excess_ns: int


class StragglersData(TypedDict):
    rows: list[StragglersRow]
    left_out: int


class Stragglers(Part, StragglersData):
    pass


class Chunk(TypedDict):
    rank: int
    kind: str
    mb: int | None
    part: int | None
    label: str
    start_ns: int
    end_ns: int
    bubble_ns: int | None
    before_ns: int | None


class PipelineRank(TypedDict):
    rank: int
    stage: int | None
    step_ns: int
    bubble_ns: int
    bubble_pct: float | None
    ideal_pct: float | None


class PipelineSummary(TypedDict):
    schedule: NotRequired[str | None]
    micro_batches: NotRequired[int | None]
    ideal_pct: NotRequired[float | None]
    bubble_pct: NotRequired[float | None]
    slowest: NotRequired[str | None]


class PipelineData(TypedDict):
    kinds: Annotated[list[tuple[str, str]], "kinds of chunks and what they are called"]
    chunks: list[Chunk]
    ranks: list[PipelineRank]
    left_out: int
    rank_command: str
    summary: PipelineSummary


class Pipeline(Part, PipelineData):
    pass

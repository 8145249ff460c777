"""The columns of `roofline`, by what a row is."""

from __future__ import annotations

from typing import Annotated, TypedDict

from stepscope.derive.kernel.occupancy import Occupancy


class Which(TypedDict):
    kernel: Annotated[int, "its place in the report, from 0"]
    name: Annotated[str, "short name"]


class _Figures(Which):
    dur_ns: Annotated[int | None, "how long it took while it was measured"]
    n: Annotated[
        int, "launches of the same work that were measured; the row is of the one of median length (1 by kernel)"
    ]
    total_ns: Annotated[int, "how long these took together"]
    bound: Annotated[
        str | None, "what bounds it: bandwidth, compute, latency or overhead; null where the report does not say"
    ]
    unit: Annotated[str | None, "the busiest unit of what bounds it: tensor pipe, instruction issue, DRAM, L2 …"]
    precision: Annotated[
        str | None, "precision and pipe of the FLOPs that would take longest at their peak: `bf16 tensor`"
    ]
    flops: Annotated[int | None, "operations of that precision on that pipe (for integers, too)"]
    tflops: Annotated[float | None, "achieved rate of these, 10¹² a second"]
    peak_tflops: Annotated[float | None, "its dense peak at the clock of the measurement"]
    intensity: Annotated[float | None, "these operations per byte of DRAM"]
    dram_bytes: Annotated[int | None, "bytes from and to DRAM"]
    dram_gbps: Annotated[float | None, "the rate of these"]
    dram_pct: Annotated[float | None, "of the bandwidth of DRAM"]
    l2_pct: Annotated[float | None, "of the bandwidth from L2 to the multiprocessors"]
    l1_pct: Annotated[float | None, "of the bandwidth of L1"]
    roof: Annotated[str | None, "its nearest roof: a precision and pipe, DRAM, L2, L1 or shared memory"]
    roof_ns: Annotated[int | None, "how long it would take there"]
    roof_pct: Annotated[float | None, "the part of that roof that it reaches"]
    compute_pct: Annotated[float | None, "Nsight Compute's compute throughput, of peak"]
    memory_pct: Annotated[float | None, "Nsight Compute's memory throughput, of peak"]
    why: Annotated[str | None, "the figures that decide what bounds it"]
    stall: Annotated[str | None, "what its warps wait for most, with shares of their cycles"]
    access: Annotated[
        str | None, "uncoalesced access to global memory, or bank conflicts, where the counters show them"
    ]
    nvtx: Annotated[str | None, "ranges around its launch"]
    grid: Annotated[str | None, "grid size"]
    block: Annotated[str | None, "block size"]
    file: Annotated[str, "report it is from"]


class InTimeline(TypedDict):
    ops: Annotated[int | None, "ops of the timeline that it, or its like, stands for; null without a timeline"]
    matched: Annotated[
        str | None,
        "how: by kind (name, grid, block), order, range or length; ambiguous; absent; null without a timeline",
    ]


class Row(_Figures, InTimeline, Occupancy): ...


class ByPrecision(Which):
    precision: Annotated[str, "of the numbers that are multiplied or added"]
    pipe: Annotated[str, "tensor or vector"]
    flops: Annotated[int | None, "operations"]
    tflops: Annotated[float | None, "achieved rate, 10¹² a second"]
    peak_tflops: Annotated[float | None, "dense peak at the clock of the measurement"]
    peak_pct: Annotated[float | None, "of that peak"]
    dram_intensity: Annotated[float | None, "operations per byte of DRAM"]
    l2_intensity: Annotated[float | None, "operations per byte from L2"]
    l1_intensity: Annotated[float | None, "operations per byte from L1"]
    peak_from: Annotated[str | None, "where the peak is from: the report, or the table of GPUs"]


class ByLevel(Which):
    level: Annotated[str, "DRAM, L2 or L1"]
    bytes: Annotated[int | None, "bytes moved"]
    rate_gbps: Annotated[float | None, "achieved rate"]
    peak_gbps: Annotated[float | None, "bandwidth at the clock of the measurement"]
    peak_pct: Annotated[float | None, "of that bandwidth"]
    peak_from: Annotated[str | None, "where the bandwidth is from: the report, or the table of GPUs"]


class ByStall(Which):
    reason: Annotated[str, "Nsight Compute's name of what warps wait for"]
    share_pct: Annotated[float, "share of the cycles of a warp"]
    meaning: Annotated[str | None, "what that is"]


class ByRule(Which):
    rule: Annotated[str, "Nsight Compute's rule"]
    speedup_pct: Annotated[float | None, "the speed-up that it estimates; null where it gives none"]
    speedup_of: Annotated[str | None, "global: of the kernel; local: of the part that it is about"]
    text: Annotated[str, "what it says"]

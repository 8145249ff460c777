"""The budget of a step: from the model's FLOPs at the GPU's dense peak down to the time that it takes, row by row.

Every instant of the GPU's window is in one row, so that the rows sum to it to the nanosecond: compute by the kernel
that owns the instant, whose time is split by what its work needs; then exposed communication, exposed copies, and idle
time by cause (`accounting`, `host`). A loss that nothing explains has a row too.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.accounting.owners import computing
from stepscope.derive.accounting.partition import Partition, partition
from stepscope.derive.flops.measured import work_of
from stepscope.derive.flops.window import Bound, of_window
from stepscope.derive.host.idle_causes import CAUSES, idle_causes
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.derive.work.phases import AGAIN, OPTIMIZER
from stepscope.derive.work.reference import MEASURED_ON, product_rate, scores_reach, stream_ns
from stepscope.derive.work.roles import PRECISION
from stepscope.derive.work.rules import MEMORY_BOUND, MULTIPLYING, Role
from stepscope.derive.work.step import StepWork, step_work, work_of_ops
from stepscope.intervals.arrays import F64, I64, one_of
from stepscope.model.gpus import Gpu, gpu_of

#: Rows of compute, in the order in which they are shown; then those of the rest of the step.
IDEAL, PRECISE, SHAPE, MEMORY, FUSION, LAYOUT, COPIES, RECOMPUTED, OPTIMIZE, UNKNOWN = range(10)
COMPUTE_ROWS = {
    IDEAL: "ideal",
    PRECISE: "precision",
    SHAPE: "below the roof",
    MEMORY: "memory-bound by nature",
    FUSION: "not fused",
    LAYOUT: "layout",
    COPIES: "casts and copies",
    RECOMPUTED: "recomputation",
    OPTIMIZE: "optimizer",
    UNKNOWN: "unknown kernels",
}
WHAT = {
    "ideal": "FLOPs of the model at the dense peak of half precision",
    "precision": "the same FLOPs at the peak of the numbers that they are done in",
    "below the roof": "kernels beyond what their FLOPs or bytes need: shapes, tails, algorithms",
    "memory-bound by nature": "norms, losses, activations and the like: their bytes at the memory's rate",
    "not fused": "bytes that a fused kernel would not move: chains of small ops, attention by hand",
    "layout": "transpositions and conversions of layout",
    "casts and copies": "copies, casts and fills on the GPU",
    "recomputation": "forward kernels that run again in the backward pass",
    "optimizer": "kernels of the optimizer's step",
    "unknown kernels": "kernels, graphs or GPUs of which nothing is known",
    "exposed communication": "nothing but communication runs",
    "exposed copies": "nothing but a copy or memset runs",
}


class Budget(Struct, frozen=True):
    """Rows of one window: names, nanoseconds that sum to it, and what the rows of compute rest on."""

    rows: dict[str, int]
    window_ns: int
    #: of the products' time, the part whose FLOPs are known: the rest is taken to reach what good kernels reach
    counted_pct: float | None
    #: FLOPs that the model asks for, at the peak of the numbers they are done in, of the window; None without shapes
    mfu_pct: float | None


def budget(data: RankData, span: Window) -> Budget | None:
    """The budget of a window; None where nothing ran in it."""
    if span.gpu_start_ns is None or span.gpu_end_ns is None or not span.gpu_ns:
        return None
    split = partition(data, span.gpu_start_ns, span.gpu_end_ns)
    op, _, length = computing(data, split)
    work, owned = _owned(data, span, op, length)
    shares = kernel_shares(work)
    per_row = _whole(shares * owned[:, None], owned)
    lines = {name: int(per_row[:, row].sum()) for row, name in COMPUTE_ROWS.items()}
    lines |= _rest(data, split)
    return Budget(lines, split.window_ns, _counted(work, owned), _mfu(data, span, work.gpu))


def _owned(data: RankData, span: Window, op: I64, length: I64) -> tuple[StepWork, I64]:
    """The work of the window's ops, and the time that each owns. Ops launched outside of it may own some of it too."""
    length_of = np.bincount(op, weights=length, minlength=len(data.start)).astype(np.int64)
    launched = int(length_of[span.ops].sum()) == int(length_of.sum())
    work = step_work(data, span) if launched else work_of_ops(data, np.flatnonzero(length_of))
    return work, length_of[work.ops]


def kernel_shares(work: StepWork) -> F64:
    """By kernel and row of compute: the part of its time; each sums to 1."""
    count = len(work.ops)
    kernel_shares = np.zeros((count, len(COMPUTE_ROWS)))
    kinds, passes, length = work.kinds, work.passes, np.maximum(work.length, 1).astype(float)
    multiplying = kinds.are(*MULTIPLYING) | work.done.known  # a compiler's kernel may multiply, too
    memory = one_of(kinds.role, MEMORY_BOUND) & ~multiplying
    _multiply(work, kernel_shares, length, multiplying)
    _stream(work, kernel_shares, length, memory)
    kernel_shares[:, UNKNOWN] = np.where(multiplying | memory, kernel_shares[:, UNKNOWN], 1.0)
    for row, mask in (
        (COPIES, kinds.are(Role.COPY, Role.CAST, Role.FILL) & ~work.parts.by_hand),
        (LAYOUT, kinds.are(Role.LAYOUT)),
        (FUSION, memory & work.parts.by_hand),
        (OPTIMIZE, passes.are(OPTIMIZER)),
        (RECOMPUTED, passes.are(AGAIN)),
    ):
        kernel_shares[mask] = 0.0
        kernel_shares[mask, row] = 1.0
    return kernel_shares


def _multiply(work: StepWork, shares: F64, length: F64, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Ideal, precision, and what is beyond the roof. Without FLOPs a product is taken to reach what good ones do."""
    if work.gpu is None:
        shares[mine, UNKNOWN] = 1.0
        return
    rate, half = work.done.rate, max(work.done.half, 1.0)
    reach = _reach()[work.done.precision]
    counted = work.done.known
    at_own = np.where(counted, np.nan_to_num(work.done.done) / rate, length * reach)
    spelled = work.parts.by_hand & ~counted
    at_own = np.minimum(np.where(spelled, length * scores_reach(), at_own), length)
    needed = np.where(counted & (work.done.done > 0), np.nan_to_num(work.done.asked / work.done.done), 1.0)
    ideal = at_own * np.minimum(rate / half, 1.0) * np.clip(needed, 0.0, 1.0)
    shares[mine, IDEAL] = (ideal / length)[mine]
    shares[mine, PRECISE] = (at_own * (1 - np.minimum(rate / half, 1.0)) / length)[mine]
    beyond = 1 - shares[:, IDEAL] - shares[:, PRECISE]
    shares[mine, SHAPE] = np.where(work.parts.by_hand, 0.0, beyond)[mine]
    shares[mine, FUSION] = np.where(work.parts.by_hand, beyond, 0.0)[mine]  # they write and read the scores


def _stream(work: StepWork, shares: F64, length: F64, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    """Bytes by nature, what a chain moves too often, and what is beyond the roof."""
    nature = np.clip(work.good.ns / length, 0.0, 1.0)
    fused = np.ones(len(length))
    inside = work.chains.of >= 0
    if inside.any() and work.gpu is not None:
        chain = work.chains.of[inside]
        needed = stream_ns(work.gpu, work.chains.needed) / np.maximum(
            np.bincount(chain, weights=work.good.ns[inside], minlength=len(work.chains.count)), 1.0
        )
        fused[inside] = np.clip(needed, 0.0, 1.0)[chain]
    shares[mine, MEMORY] = (nature * fused)[mine]
    shares[mine, FUSION] = (nature * (1 - fused))[mine]
    shares[mine, SHAPE] = (1 - nature)[mine]


def _reach() -> F64:
    """By precision: the part of its peak that large products reach."""
    device = gpu_of(MEASURED_ON)
    assert device is not None
    rates = []
    for name in PRECISION:
        rate = product_rate(device, name or "bf16", 1e13)
        peak = device.rate(name if name in ("tf32", "fp32") else "bf16")  # type: ignore[arg-type]
        rates.append(rate.value / peak if rate and peak else 1.0)
    return np.array(rates)


def _whole(parts: F64, total: I64) -> I64:
    """Nanoseconds without fractions, by row, that sum to each total: what rounding leaves goes to the largest part."""
    whole = np.floor(parts).astype(np.int64)
    if len(whole):
        whole[np.arange(len(total)), parts.argmax(axis=1)] += total - whole.sum(axis=1)
    return whole


def _rest(data: RankData, split: Partition) -> dict[str, int]:
    """Exposed communication and copies, and idle time by cause, as `breakdown` and `idle` have them."""
    lines = {
        "exposed communication": split.comm_exposed.length(),
        "exposed copies": split.copy_exposed.length(),
    }
    pieces = idle_causes(data, split.start, split.end)
    time = np.bincount(pieces.cause, weights=pieces.end - pieces.start, minlength=len(CAUSES)).astype(np.int64)
    return lines | {f"idle: {cause}": int(ns) for cause, ns in zip(CAUSES, time.tolist(), strict=True)}


def _counted(work: StepWork, owned: I64) -> float | None:
    multiplying = work.kinds.are(*MULTIPLYING)
    time = int(owned[multiplying].sum())
    return 100.0 * int(owned[multiplying & work.done.known].sum()) / time if time else None


def _mfu(data: RankData, span: Window, gpu: Gpu | None) -> float | None:
    """As `mfu --attention causal` has it."""
    work = work_of(data)
    if gpu is None or not work.shaped:
        return None
    bound = Bound(gpu, assumed="bf16" if gpu.bf16 else "fp16")
    return of_window(data.profile, data, span, work, bound, "causal").share("model")

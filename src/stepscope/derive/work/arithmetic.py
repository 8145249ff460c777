"""FLOPs of each kernel, the peak of the numbers that it computes with, and how long it would take if it were done well.

FLOPs are those of the torch op that launched it (`derive/flops`: by shapes, or measured), without what a causal mask
hides; of several kernels of one op that multiply, a part by their times. Without shapes nothing tells them.

Done well on this GPU is the same work, in the same numbers, and in this order: what this very trace reaches elsewhere,
the measured reference kernels (`reference`). A product is as fast as the fastest of the trace that is no larger, or as
the reference of its size; what streams through memory takes its bytes at the memory's rate. Nothing takes longer than
it does.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.flops.measured import work_of
from stepscope.derive.flops.precision import peak
from stepscope.derive.flops.work import BACKWARD, FORWARD, MEASURED, Work
from stepscope.derive.rank.data import RankData
from stepscope.derive.work.reference import MEASURED_ON, convolution_rate, product_rate, stream_ns
from stepscope.derive.work.roles import PRECISION, Kernels, kernels
from stepscope.derive.work.rules import MEMORY_BOUND, MULTIPLYING, Role
from stepscope.derive.work.sizes import GRID, Sizes, crossing
from stepscope.intervals.arrays import F64, I64, NONE, Mask, one_of, take
from stepscope.model.gpus import Gpu


class Arithmetic(Struct, frozen=True):
    """By row of the ops that were asked about. FLOPs are NaN where nothing tells; rates where the GPU is not known."""

    #: what the model asks for; 0 of what runs again
    asked: F64
    #: what was run
    done: F64
    #: dense peak of its own numbers, and of half precision: FLOPs a nanosecond
    rate: F64
    half: float
    #: codes of PRECISION: types where recorded, else the name's
    precision: np.ndarray[tuple[int], np.dtype[np.int8]]

    @property
    def known(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return ~np.isnan(self.done)


def arithmetic(data: RankData, ops: I64, kinds: Kernels, gpu: Gpu | None) -> Arithmetic:
    """FLOPs and peaks of these ops."""
    work = work_of(data)
    share = data.once(_shares)[ops]
    row = np.where(share > 0, work.of_kernel[ops], NONE)
    counted = work.ops.select(
        asked=pl.when(pl.col("phase").is_in([FORWARD, BACKWARD, MEASURED])).then("causal").otherwise(0),
        done=pl.col("causal") + pl.col("again_causal"),
    ).cast(pl.Float64)
    asked, done = (take(counted[c].fill_null(np.nan).to_numpy(), row, np.nan) * share for c in ("asked", "done"))
    precision = _precisions(work, row, kinds)
    return Arithmetic(asked, done, _rates(gpu, precision), _half(gpu), precision)


def _shares(data: RankData) -> F64:
    """The part that each GPU op of the rank has of its torch op, by times: among kernels that multiply, where it has
    any; 0 for others."""
    of = work_of(data).of_kernel
    everything = np.arange(len(data.start))
    multiplying = kernels(data, everything).are(*MULTIPLYING)
    length = np.maximum(data.end - data.start, 1).astype(float)
    counted = of != NONE
    count = int(of.max(initial=-1)) + 1
    those = np.bincount(of[counted], weights=(length * multiplying)[counted], minlength=count)
    whole = np.bincount(of[counted], weights=length[counted], minlength=count)
    shares = np.zeros(len(of))
    at = of[counted]
    shares[counted] = np.where(
        those[at] > 0, (length * multiplying)[counted] / np.maximum(those[at], 1), length[counted] / whole[at]
    )
    return shares


def _precisions(work: Work, row: I64, kinds: Kernels) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Types say what was multiplied; fp32 on tensor cores is TF32."""
    codes = {name: code for code, name in enumerate(PRECISION)}
    typed = work.ops["precision"].replace_strict(codes, default=0, return_dtype=pl.Int8).fill_null(0).to_numpy()
    precision = take(typed, row, 0)
    precision = np.where((precision == codes["fp32"]) & (kinds.tensor == 1), codes["tf32"], precision)
    return np.where(precision > 0, precision, kinds.precision).astype(np.int8)


def _rates(gpu: Gpu | None, precision: np.ndarray[tuple[int], np.dtype[np.int8]]) -> F64:
    """FLOPs a nanosecond at the peak: half precision's where nothing says the numbers."""
    if gpu is None:
        return np.full(len(precision), np.nan)
    peaks = [_peak(gpu, name) for name in PRECISION]
    rates: F64 = np.array(peaks)[precision]
    return rates


def _peak(gpu: Gpu, precision: str) -> float:
    if not precision:
        return _half(gpu)
    name, tensor = ("fp32", True) if precision == "tf32" else (precision, False)
    reached = peak(gpu, name, tensor)
    return 1e3 * reached[1] if reached else _half(gpu)


def _half(gpu: Gpu | None) -> float:
    return 1e3 * (gpu.half or gpu.fp32) if gpu else np.nan


#: From where a good time is known.
SOURCES = ("itself", "this trace", "reference", "reference, scaled")
ITSELF, TRACE, REFERENCE, SCALED = range(len(SOURCES))


class Good(Struct, frozen=True):
    """By row of the ops that were asked about: nanoseconds, and a code of SOURCES; ITSELF is not a claim at all."""

    ns: F64
    source: np.ndarray[tuple[int], np.dtype[np.int8]]


def good(data: RankData, ops: I64, kinds: Kernels, size: Sizes, done: Arithmetic, gpu: Gpu | None) -> Good:
    """The good time of each op."""
    length = (data.end - data.start)[ops].astype(float)
    best, source = length.copy(), np.full(len(ops), ITSELF, np.int8)
    if gpu is None:
        return Good(best, source)
    measured = REFERENCE if gpu.name == MEASURED_ON else SCALED
    streaming = one_of(kinds.role, MEMORY_BOUND) & (size.source >= GRID) & ~crossing(data, ops)
    best[streaming] = stream_ns(gpu, size.bytes[streaming])
    source[streaming] = measured
    counted = done.known & (done.done > 0)
    for role in (Role.PRODUCT, Role.CONVOLUTION):
        for code in np.unique(done.precision[counted & kinds.are(role)]).tolist():
            mine = counted & kinds.are(role) & (done.precision == code)
            best[mine], source[mine] = _multiplied(role, PRECISION[code], done.done[mine], length[mine], gpu, measured)
    shorter: Mask = best < length
    return Good(np.where(shorter, best, length), np.where(shorter, source, ITSELF).astype(np.int8))


def _multiplied(
    role: Role, precision: str, flops: F64, length: F64, gpu: Gpu, measured: int
) -> tuple[F64, np.ndarray[tuple[int], np.dtype[np.int8]]]:
    """At the rate that an equal or smaller one of the trace reaches, or at the reference of its size."""
    of = product_rate if role is Role.PRODUCT else convolution_rate
    sizes, where = np.unique(flops, return_inverse=True)
    rates = np.array([found.value if (found := of(gpu, precision or "bf16", s)) else 0.0 for s in sizes.tolist()]) * 1e3
    fastest = np.zeros(len(sizes))
    np.maximum.at(fastest, where, flops / np.maximum(length, 1))
    fastest = np.maximum.accumulate(fastest)
    source = np.where(fastest >= rates, TRACE, measured).astype(np.int8)
    return flops / np.maximum(np.maximum(rates, fastest), 1e-9)[where], source[where]

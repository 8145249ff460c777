"""How long each kernel would take if it were done well on this GPU: the same work, in the same numbers.

In this order: what this very trace reaches elsewhere, the measured reference kernels (`reference`). A product is as
fast as the fastest of the trace that is no larger, or as the reference of its size; what streams through memory takes
its bytes at the memory's rate. Nothing takes longer than it does.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.work.arithmetic import Arithmetic
from stepscope.derive.work.reference import MEASURED_ON, convolution_rate, product_rate, stream_ns
from stepscope.derive.work.roles import PRECISION, Kernels
from stepscope.derive.work.rules import MEMORY_BOUND, Role
from stepscope.derive.work.sizes import GRID, Sizes, crossing
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.gpus import Gpu

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
    streaming = np.isin(kinds.role, list(MEMORY_BOUND)) & (size.source >= GRID) & ~crossing(data, ops)
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

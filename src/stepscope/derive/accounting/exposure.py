"""The communication ops of a window, each with its exposure, stage and whether it is a barrier (semantics §2, §5)."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import COMM, RankData
from stepscope.derive.rank.streams import in_order_with_compute
from stepscope.derive.windows.window import Window
from stepscope.intervals import Spans, covered, subtract, union
from stepscope.intervals.arrays import I64, Mask


class CommOps(Struct, frozen=True):
    """Communication ops of one window; times are cut at its edges where the window was given in GPU time."""

    ops: I64  # rows within the rank's ops
    start: I64
    end: I64
    exposed: I64  # |c \ K|
    compute: Spans  # K, as far as these ops reach
    barrier: Mask  # in order with compute on its own stream: cannot overlap by construction

    @property
    def length(self) -> I64:
        return self.end - self.start

    def wall_ns(self, chosen: Mask) -> int:
        """Time in which any of the chosen ops runs without compute beside it."""
        return exposed_wall(self.start[chosen], self.end[chosen], self.compute)


def exposed_wall(start: I64, end: I64, compute: Spans) -> int:
    """Time in which any of these runs without compute beside it: |∪c − K|, where `exposed` of each may overlap."""
    return subtract(union(start, end), compute).length()


def comm_ops(data: RankData, span: Window) -> CommOps:
    """Communication of the window, exposed against all compute of the rank, inside the window or not."""
    return data.once(_comm_ops, span)


def _comm_ops(data: RankData, span: Window) -> CommOps:
    mine = span.ops[data.role[span.ops] == COMM]
    start, end = data.start[mine], data.end[mine]
    if span.clipped and span.gpu_start_ns is not None and span.gpu_end_ns is not None:
        start, end = np.maximum(start, span.gpu_start_ns), np.minimum(end, span.gpu_end_ns)
    near = data.compute.clip(int(start.min()), int(end.max())) if len(mine) else Spans.empty()
    exposed = (end - start) - covered(start, end, near)
    barrier = in_order_with_compute(data, span.ops)[data.role[span.ops] == COMM]
    return CommOps(mine, start, end, exposed, near, barrier)

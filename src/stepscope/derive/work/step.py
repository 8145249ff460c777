"""Everything that `derive/work` knows of the ops of one window, worked out together once."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.derive.work.arithmetic import Arithmetic, Good, arithmetic, good
from stepscope.derive.work.parts import Parts, parts
from stepscope.derive.work.phases import OPTIMIZER, Phases, phases
from stepscope.derive.work.roles import Kernels, kernels
from stepscope.derive.work.rules import Role
from stepscope.derive.work.sizes import Sizes, gpu, sizes
from stepscope.intervals.arrays import F64, I64, in_order
from stepscope.model.gpus import Gpu


class StepWork(Struct, frozen=True):
    """`ops`: rows of the rank's ops; all else by row of these."""

    ops: I64
    length: I64
    gpu: Gpu | None
    kinds: Kernels
    passes: Phases
    parts: Parts
    sizes: Sizes
    chains: Chains
    done: Arithmetic
    good: Good


class _Of:
    """The ops of a window as a key: a window is the same where its edges are."""

    def __init__(self, span: Window) -> None:
        self.ops = span.ops
        self._key = (span.kind, span.index, span.gpu_start_ns, span.gpu_end_ns, len(span.ops))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Of) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def step_work(data: RankData, span: Window) -> StepWork:
    """The work of a window's ops, worked out once."""
    return data.once(_of_window, _Of(span))


def _of_window(data: RankData, which: _Of) -> StepWork:
    return work_of_ops(data, which.ops)


def work_of_ops(data: RankData, ops: I64) -> StepWork:
    """The work of these ops: those of one window, since passes and chains are looked for among them."""
    device = gpu(data)
    kinds = kernels(data, ops)
    passes, size = phases(data, ops, kinds), sizes(data, ops, kinds)
    done = arithmetic(data, ops, kinds, device)
    return StepWork(
        ops,
        (data.end - data.start)[ops],
        device,
        kinds,
        passes,
        parts(data, ops, kinds, passes),
        size,
        chains(data, ops, kinds, passes, size),
        done,
        good(data, ops, kinds, size, done, device),
    )


_FUSIBLE = (
    *(Role.ELEMENTWISE, Role.CAST, Role.COPY, Role.FILL, Role.REDUCTION, Role.RANDOM, Role.NORM, Role.SOFTMAX),
    *(Role.LOSS, Role.FUSED, Role.LAYOUT),
)


class Chains(Struct, frozen=True):
    """By row of the ops that were asked about: which chain it is in (-1: none; a kernel alone is none), and by chain
    its kernels, bytes, time, and the bytes that one fused kernel would move."""

    of: I64
    count: I64
    bytes: F64
    ns: I64
    needed: F64


def chains(data: RankData, ops: I64, kinds: Kernels, when: Phases, size: Sizes) -> Chains:
    """The chains of a window's ops: memory-bound kernels that one could be, each reads what the one before wrote.

    A chain is a run, in launch order, of kernels of one pass on one stream that only stream through memory, with
    nothing between them. One fused kernel would move no more than the largest of them does.
    """
    order = in_order(data.stream[ops], data.launched_at[ops], data.start[ops])
    fusible = (kinds.are(*_FUSIBLE) & ~when.are(OPTIMIZER) & data.is_kernel[ops])[order]
    stream, phase = data.stream[ops][order], when.phase[order]
    new = np.ones(len(order), bool)
    new[1:] = ~fusible[1:] | ~fusible[:-1] | (stream[1:] != stream[:-1]) | (phase[1:] != phase[:-1])
    run = np.cumsum(new) - 1
    long = (np.bincount(run, minlength=len(order))[run] > 1) & fusible
    of = np.full(len(ops), -1, np.int64)
    ids, where = np.unique(run[long], return_inverse=True)
    of[order[long]] = where
    mine = order[long]
    length = (data.end - data.start)[ops]
    moved = np.nan_to_num(size.bytes[mine])
    needed = np.zeros(len(ids))
    np.maximum.at(needed, where, moved)
    return Chains(
        of,
        np.bincount(where, minlength=len(ids)),
        np.bincount(where, weights=moved, minlength=len(ids)).astype(np.float64),
        np.bincount(where, weights=length[mine], minlength=len(ids)).astype(np.int64),
        needed,
    )

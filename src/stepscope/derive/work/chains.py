"""Chains of memory-bound kernels that one kernel could be: each reads what the one before it wrote.

A chain is a run, in launch order, of kernels of one pass on one stream that only stream through memory, with nothing
between them. One fused kernel would move no more than the largest of them does.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.work.phases import OPTIMIZER, Phases
from stepscope.derive.work.roles import Kernels
from stepscope.derive.work.rules import Role
from stepscope.derive.work.sizes import Sizes
from stepscope.intervals.arrays import F64, I64, in_order

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
    """The chains of a window's ops."""
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

"""Chains of elementwise kernels and reductions: norms, activations, rotations of positions written out.

What it could save is the step replayed with each chain as one kernel that reads its inputs and writes its outputs once,
as fast as the chain's own kernels move bytes.

A chain is what works on tensors of one size within a segment (`sequence`): a norm, an activation, a rotation of
positions written out. A fused kernel reads what the first of them reads and writes what the last writes; it reads once
more where something is summed over first, and in the backward pass what the forward pass kept. A sum of two branches at
its beginning stays: others need it, too. A chain that begins with the same kernels twice is of two tensors, as the
norms of queries and keys are. It moves that as fast as the chain's own kernels move bytes, and is no faster than the
quickest of them.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.roles import Role
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, NONE, Mask, packed, unpacked
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "unfused-kernels"

CHAIN = Threshold(
    3,
    "kernels that compute",
    "two of a size come together in every model, a product's bias and an activation; three are an op written out",
    ("tests/findings/test_waste_pairs.py",),
)


_MEMBERS = (Role.ELEMENTWISE, Role.REDUCTION, Role.RANDOM, Role.CAST, Role.COPY)
_COMPUTING = (Role.ELEMENTWISE, Role.REDUCTION, Role.RANDOM)


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of a chain, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    member = free & sequence.kinds.are(*_MEMBERS) & (sequence.size_class != NONE) & ~sequence.optimizer
    at = np.flatnonzero(member)
    if not len(at):
        return left
    _, group = np.unique(packed(sequence.segment[at], sequence.size_class[at]), return_inverse=True)
    computing = sequence.kinds.are(*_COMPUTING)[at]
    count = np.bincount(group, weights=computing)
    kinds = unpacked(np.unique(packed(group, sequence.data.name[sequence.ops[at]])[computing]))[0]
    several = np.bincount(kinds, minlength=len(count)) >= CHAIN.value  # one many times: of many tensors
    long = several & (2 * count > np.bincount(group))  # else casts and copies are what is wrong with it
    chosen = long[group]
    at, group = at[chosen], np.unique(group[chosen], return_inverse=True)[1].reshape(-1)
    if not len(at):
        return left
    took = np.bincount(group, weights=sequence.ns[at])
    left[at] = np.minimum(_fused_ns(sequence, at, group) / np.maximum(took, 1.0), 1.0)[group]
    return left


def _fused_ns(sequence: Sequence, at: I64, group: I64) -> F64:
    """By chain: what one kernel would take."""
    count = int(group.max()) + 1
    elements = sequence.elements[at]
    by_grid = sequence.by_grid[at] & ~np.isnan(sequence.sizes.elements[at])
    moved = np.where(by_grid, sequence.sizes.bytes[at], 0.0)
    rate = _sum(group, moved, count) / np.maximum(_sum(group, np.where(by_grid, sequence.ns[at], 0), count), 1.0)
    item, tensors = _items(sequence, at)
    first, last = _ends(group, at, count)
    size = np.zeros(count)
    np.maximum.at(size, group, elements)
    reduces = _sum(group, sequence.kinds.are(Role.REDUCTION)[at], count) > 0
    back = sequence.back[at[first]]
    joins = (tensors[first] == 3) & ~back & sequence.heavy[np.maximum(at[first] - 1, 0)]
    passes = 1.0 + reduces + 2.0 * joins + back * (1.0 + reduces)
    good = size * (passes * item[first] + item[last]) * _tensors(sequence, at, group) / np.maximum(rate, 1e-9)
    quickest = np.full(count, np.inf)
    np.minimum.at(quickest, group, np.where(by_grid, sequence.ns[at], np.inf))
    return np.where(rate > 0, np.maximum(good, np.where(np.isinf(quickest), 0.0, quickest)), np.inf)


def _tensors(sequence: Sequence, at: I64, group: I64) -> I64:
    """By chain: on how many tensors it runs, one after the other."""
    order = np.lexsort((at, group))
    names = sequence.data.name[sequence.ops[at[order]]].astype(np.int64)
    parts = np.split(names, np.flatnonzero(np.diff(group[order])) + 1)
    return np.array([_times(part) for part in parts], dtype=np.int64)


def _times(names: I64) -> int:
    """How often the kernels that it begins with come in a row."""
    for period in range(int(CHAIN.value), len(names) // 2 + 1):
        if np.array_equal(names[:period], names[period : 2 * period]):
            whole = len(names) // period * period
            return int((names[:whole].reshape(-1, period) == names[:period]).all(axis=1).sum())
    return 1


def _items(sequence: Sequence, at: I64) -> tuple[F64, I64]:
    """Bytes of one number of each kernel's tensors, and how many tensors it reads and writes."""
    with np.errstate(invalid="ignore"):
        each = np.round(sequence.sizes.bytes[at] / sequence.sizes.elements[at])
    each = np.where(np.isnan(each) | ~sequence.by_grid[at], 8.0, each)
    cast = sequence.kinds.are(Role.CAST)[at]
    tensors = np.where(~cast & (np.mod(each, 3) == 0), 3, 2)
    return each / tensors, tensors


def _ends(group: I64, at: I64, count: int) -> tuple[I64, I64]:
    """By chain: its first and last kernel, as places in `at`."""
    order = np.lexsort((at, group))
    starts = np.searchsorted(group[order], np.arange(count))
    stops = np.searchsorted(group[order], np.arange(count), side="right") - 1
    return order[starts], order[stops]


def _sum(group: I64, values: F64 | I64 | Mask, count: int) -> F64:
    total: F64 = np.bincount(group, weights=values, minlength=count).astype(np.float64)
    return total


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "unfused-kernels",
            kernels=several(lost.kernels, "elementwise kernel runs", "elementwise kernels run"),
            rank=lost.rank,
        ),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; each reads and writes the "
        "whole tensor. As one kernel per chain, at the bandwidth that they reach, they would take "
        f"{about(lost.good_ns)}",
        advice("unfused-kernels"),
    )


remedy, detect = claimed(ID, _worded)

"""Attention written by hand: a product gives the scores, they are scaled, masked and normalized, a product uses them.

The scores are as many as queries times keys, and every kernel in between reads and writes all of them. A softmax
between two products tells it, in the backward pass likewise, with two products on either side; unless something is
sorted between them, as a router of experts does, or the products are far larger than the scores. Its good time is that
of fused attention, which never writes the scores: 4 FLOPs per score and per number of a head forward (half of them
under a mask), 2.5 times that backward, at the rate measured for heads of that size (`derive/work/reference.py`).
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.reference import attention_rate, bandwidth
from stepscope.derive.work.roles import Role
from stepscope.derive.work.sizes import gpu, launches
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.thresholds import FAR_LARGER, LIKE_PRODUCT, SAME_SIZE, USUAL_HEAD
from stepscope.intervals.arrays import F64, I64, Mask

#: Sizes of heads that fused kernels have; what a tensor beside the scores gives otherwise is no head.
_HEADS = np.array([32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256])


def attention(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of attention by hand, NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    landmarks = np.flatnonzero(sequence.heavy)
    softmaxes = np.flatnonzero(sequence.kinds.are(Role.SOFTMAX) & free)
    device = gpu(sequence.data)
    if not len(softmaxes) or device is None:
        return left
    for at in softmaxes.tolist():
        place = int(np.searchsorted(landmarks, at))
        if 0 < place < len(landmarks) and np.isnan(left[at]):
            _mark(sequence, landmarks, place, at, left)
    return left


def _mark(sequence: Sequence, landmarks: I64, place: int, at: int, left: F64) -> None:
    """One softmax, between the landmarks before and at `place`."""
    role = sequence.role
    before, after = int(landmarks[place - 1]), int(landmarks[place])
    if role[before] != Role.PRODUCT or role[after] != Role.PRODUCT:
        return
    inside = np.arange(before + 1, after)
    if sequence.kinds.are(Role.SORT)[inside].any() or np.isnan(sequence.sizes.elements[inside]).all():
        return
    back = bool(sequence.back[at])
    first = _further(sequence, landmarks, place - 2, before) if back else before
    last = _further(sequence, landmarks, place + 1, after) if back else after
    rows, scores = _scores(sequence, inside, at)
    if max(int(sequence.ns[before]), int(sequence.ns[after])) > FAR_LARGER.value * _written_ns(sequence, scores):
        return
    good = _good_ns(sequence, scores, rows, _head(sequence, first, last, rows), back=back)
    group = np.arange(first, last + 1)
    left[group] = min(1.0, good / max(float(sequence.ns[group].sum()), 1.0))


def _written_ns(sequence: Sequence, scores: float) -> float:
    """How long it takes to write the scores in half precision: products that give or take them are not much longer."""
    device = gpu(sequence.data)
    assert device is not None
    return 2.0 * scores / bandwidth(device).value


def _further(sequence: Sequence, landmarks: I64, place: int, beside: int) -> int:
    """The product beyond one, where it is one of the same pair: of two gradients, each as much work as the other."""
    if not 0 <= place < len(landmarks) or sequence.role[landmarks[place]] != Role.PRODUCT:
        return beside
    ratio = sequence.ns[landmarks[place]] / max(sequence.ns[beside], 1)
    return int(landmarks[place]) if 1 / LIKE_PRODUCT.value < ratio < LIKE_PRODUCT.value else beside


def _scores(sequence: Sequence, inside: I64, at: int) -> tuple[float, float]:
    """Rows of the softmax, and all scores. A softmax within a warp takes rows up to the next power of two; others have
    a block for each row."""
    elements = sequence.sizes.elements
    shape = launches(sequence.data, sequence.ops[at : at + 1])
    warps = int(shape.blocks[0] * shape.rows[0]) if not np.isnan(elements[at]) else int(shape.blocks[0])
    return float(max(warps, 1)), float(np.nanmax(elements[inside]))


def _head(sequence: Sequence, first: int, last: int, rows: float) -> float:
    """The size of a head: queries, keys and values are copied or cast before and after, rows times as much."""
    around = sequence.sizes.elements[max(first - 12, 0) : last + 6]
    ratio = around[~np.isnan(around)] / rows
    known = [head for head in _HEADS.tolist() if (np.abs(ratio / head - 1) < SAME_SIZE.share).any()]
    return float(known[-1] if known else USUAL_HEAD.value)


def _good_ns(sequence: Sequence, scores: float, rows: float, head: float, *, back: bool) -> float:
    device = gpu(sequence.data)
    assert device is not None
    length = int(max(scores / rows, 1))
    rate = attention_rate(device, int(head), length, causal=True, backward=back)
    flops = 4 * scores * head / 2 * (2.5 if back else 1.0)
    return flops / (rate.value * 1e3) if rate is not None else 0.0

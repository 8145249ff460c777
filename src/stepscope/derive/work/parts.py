"""The parts of a model that a step's kernels belong to, as a person would name them: by what stands beside what.

Kernels in the order of their launches, of the window that was asked about. Attention is fused kernels, or what lies
between the products around a softmax; a loss is the run of memory-bound kernels around its log-softmax; the optimizer
is a pass of its own. What is between those is named by what it does.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.work.launches import launching
from stepscope.derive.work.phases import AGAIN, BACKWARD, OPTIMIZER, Phases, in_order, phases
from stepscope.derive.work.roles import Kernels, kernels
from stepscope.derive.work.rules import MULTIPLYING, Role
from stepscope.derive.work.sizes import crossing
from stepscope.intervals.arrays import I64, Mask, one_of
from stepscope.model.threshold import Threshold

PARTS = (
    *("other", "attention", "linear layers", "convolutions", "norms", "loss", "embedding", "optimizer"),
    *("elementwise", "casts and copies", "indexing", "pooling", "compiled", "communication", "graph"),
    "copies to and from the host",
)
_CODE = {name: code for code, name in enumerate(PARTS)}
ATTENTION, LOSS = _CODE["attention"], _CODE["loss"]
_OF_ROLE = {
    Role.PRODUCT: "linear layers",
    Role.CONVOLUTION: "convolutions",
    Role.LAYOUT: "casts and copies",
    Role.ATTENTION: "attention",
    Role.SOFTMAX: "elementwise",
    Role.NORM: "norms",
    Role.ELEMENTWISE: "elementwise",
    Role.REDUCTION: "elementwise",
    Role.COPY: "casts and copies",
    Role.CAST: "casts and copies",
    Role.FILL: "casts and copies",
    Role.RANDOM: "elementwise",
    Role.OPTIMIZER: "optimizer",
    Role.EMBEDDING: "embedding",
    Role.INDEX: "indexing",
    Role.SORT: "indexing",
    Role.LOSS: "loss",
    Role.FUSED: "compiled",
    Role.POOLING: "pooling",
    Role.COMMUNICATION: "communication",
    Role.GRAPH: "graph",
}
_BY_ROLE = np.array([_CODE[_OF_ROLE.get(role, "other")] for role in Role], np.int8)
#: What a loss or a softmax cannot reach beyond.
_WALLS = (Role.PRODUCT, Role.CONVOLUTION, Role.ATTENTION, Role.NORM, Role.EMBEDDING, Role.OPTIMIZER, Role.POOLING)
_NEAR = Threshold(
    12,
    "kernels",
    "between a softmax and the product that made its scores lie scaling, masks, dropout and casts",
    ("tests/derive/work/test_work_parts.py",),
)
#: A softmax written out: exp(x - max) and its sum.
_EXP, _MAX, _SUM = r"\bexp_kernel", r"MaxOps|max_kernel|max_values|MaxNanFunctor", r"sum_functor|sum_kernel"
#: The torch op of a convolution, and kernels that bring numbers into the form in which a product convolves them.
_CONVOLVING, _TRANSFORM = r"conv(olution|_|\d)", r"winograd_nonfused|fft2d_|im2d?2?col|col2im|vol2col"
I8 = np.ndarray[tuple[int], np.dtype[np.int8]]


class Parts(Struct, frozen=True):
    """By row of the ops that were asked about: a code of PARTS, and whether attention is spelled out in kernels."""

    part: I8
    #: of a softmax between products: what fused attention would do in one kernel
    by_hand: Mask

    def are(self, *parts: str) -> Mask:
        mask: Mask = one_of(self.part, [_CODE[part] for part in parts])
        return mask


def parts(data: RankData, ops: I64, known: Kernels | None = None, passes: Phases | None = None) -> Parts:
    """The part of each op."""
    kinds = known or kernels(data, ops)
    when = passes or phases(data, ops, kinds)
    part_of = _BY_ROLE[kinds.role]
    order = in_order(data, ops)
    order = order[~kinds.are(Role.COMMUNICATION)[order]]
    by_hand = np.zeros(len(ops), bool)
    soft = (kinds.are(Role.SOFTMAX) | spelled_softmax(data, ops, kinds, order)) & ~when.are(OPTIMIZER)
    by_hand[order] = _around_softmax(kinds.role[order], kinds.matrix[order], when.phase[order], soft[order])
    part_of[_of_convolutions(data, ops, kinds, order)] = _CODE["convolutions"]
    part_of[by_hand] = ATTENTION
    lossy = np.zeros(len(ops), bool)
    lossy[order] = _around_loss(kinds.role[order])
    part_of[lossy & ~by_hand] = LOSS
    part_of[when.are(OPTIMIZER) & ~kinds.are(Role.COMMUNICATION)] = _CODE["optimizer"]
    part_of[crossing(data, ops)] = _CODE["copies to and from the host"]
    return Parts(part_of, by_hand)


def _of_convolutions(data: RankData, ops: I64, kinds: Kernels, order: I64) -> Mask:
    """Products by which a convolution is computed: its torch op launched them, or its transforms stand beside them."""
    products = kinds.are(Role.PRODUCT)
    of_convolutions: Mask = products & launching(data).names(ops).str.contains(_CONVOLVING).fill_null(False).to_numpy()
    transforms = np.r_[False, data.profile.names_with(_TRANSFORM)[data.name[ops[order]]], False]
    beside = products[order] & (transforms[:-2] | transforms[2:])
    of_convolutions[order[beside]] = True
    return of_convolutions


def spelled_softmax(data: RankData, ops: I64, kinds: Kernels, order: I64) -> Mask:
    """Exponentials that stand for a softmax written out: between the same two kernels that multiply (`order`: by
    launch) something is maximized and something summed up."""
    spelled_softmax = np.zeros(len(ops), bool)
    name = data.name[ops[order]]
    exponential = data.profile.names_with(_EXP)[name] & kinds.are(Role.ELEMENTWISE)[order]
    if not exponential.any():
        return spelled_softmax
    stretch = np.cumsum(kinds.are(*MULTIPLYING)[order])
    reduces = kinds.are(Role.REDUCTION)[order]
    for pattern in (_MAX, _SUM):
        exponential &= np.isin(stretch, stretch[reduces & data.profile.names_with(pattern)[name]])
    spelled_softmax[order[exponential]] = True
    return spelled_softmax


def _around_softmax(role: I8, matrix: Mask, phase: I8, is_soft: Mask) -> Mask:
    """From the product before a softmax to the product behind it; in the backward pass two products on either side.

    A softmax that chooses (sorting stands behind it) or whose products are far is none of attention's.
    """
    count = len(role)
    marked = np.zeros(count, bool)
    product = np.flatnonzero((role == Role.PRODUCT) & matrix)
    soft = np.flatnonzero(is_soft)
    if not len(product) or not len(soft):
        return marked
    sides = np.where(phase[soft] == BACKWARD, 2, 1)
    behind = np.searchsorted(product, soft)
    first, last = behind - sides, behind + sides - 1
    inside = (first >= 0) & (last < len(product))
    soft, sides, behind, first, last = (a[inside] for a in (soft, sides, behind, first, last))
    near = (soft - product[behind - 1] <= _NEAR.count) & (product[behind] - soft <= _NEAR.count)
    near &= (product[behind - 1] - product[first] <= _NEAR.count) & (product[last] - product[behind] <= _NEAR.count)
    begin, end = product[first], product[last]
    walls = np.r_[0, np.cumsum(one_of(role, (Role.SORT, Role.LOSS, Role.NORM, Role.ATTENTION, Role.CONVOLUTION)))]
    near &= walls[end + 1] == walls[begin]
    return _covered(count, begin[near], end[near] + 1)


def _around_loss(role: I8) -> Mask:
    """Runs between walls that have a loss's kernel in them."""
    wall = one_of(role, _WALLS)
    run = np.cumsum(wall)
    lossy = np.unique(run[role == Role.LOSS])
    around_loss: Mask = np.isin(run, lossy) & ~wall
    return around_loss


def _covered(count: int, begin: I64, end: I64) -> Mask:
    """Places within any of the spans."""
    edges = np.zeros(count + 1, np.int64)
    np.add.at(edges, begin, 1)
    np.add.at(edges, end, -1)
    mask: Mask = np.cumsum(edges[:-1]) > 0
    return mask


class Layers(Struct, frozen=True):
    """The shortest sequence that recurs: how many kernels it has, how often it runs in a row, and where it begins."""

    period: int
    times: int
    begin: int

    def of(self, count: int) -> I64:
        """The number of the layer at each place of the sequence; -1 outside of them."""
        at = np.arange(count) - self.begin
        position: I64 = np.where((at >= 0) & (at < self.period * self.times), at // max(self.period, 1), -1)
        return position


#: Periods that are tried: those by which like symbols follow each other most often.
_TRIED = 256


def layers(symbols: I64) -> Layers:
    """Layers by repetition: of all periods the one whose unbroken repetition covers most; of equals, the shortest.

    A sequence repeats with period p where each symbol equals that p places before it.
    """
    best = Layers(0, 0, 0)
    covered = 0
    for period in _periods(symbols):
        if covered * 1.1 >= len(symbols):  # nothing can cover more by so much
            break
        same = symbols[period:] == symbols[:-period]
        edges = np.flatnonzero(np.diff(np.r_[False, same, False].astype(np.int8)))
        begin, end = edges[::2], edges[1::2]
        if not len(begin):
            continue
        k = int(np.argmax(end - begin))
        times = (int(end[k] - begin[k]) + period) // period
        if times >= 2 and times * period > covered * 1.1:
            best, covered = Layers(period, times, int(begin[k])), times * period
    return best


def _periods(symbols: I64) -> list[int]:
    """Distances from a symbol to the next of its kind, the most frequent ones, from short to long."""
    order = np.argsort(symbols, kind="stable")
    same = symbols[order[1:]] == symbols[order[:-1]]
    distance, count = np.unique((order[1:] - order[:-1])[same], return_counts=True)
    fits = (distance >= 2) & (distance <= len(symbols) // 2)
    distance, count = distance[fits], count[fits]
    often = np.argsort(-count, kind="stable")[:_TRIED]
    periods: list[int] = np.sort(distance[often]).tolist()
    return periods


def recomputed(when: Phases) -> Mask:
    """What runs a second time."""
    return when.are(AGAIN)

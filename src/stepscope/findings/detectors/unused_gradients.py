"""Gradients that nothing is trained by: of a frozen part that still asks for them.

What it could save is the step replayed without the kernels of the backward pass behind what is trained, and their
launches.

An optimizer sets the gradients that it steps to nothing, so that the next backward pass writes them. Those of other
parameters stay, and every pass adds to them: behind the product that gives a weight's gradient, and the cast to the
weight's numbers, comes an addition of the same size. Where the backward pass begins without such additions and ends
with them, layer after layer, its end is of layers that no optimizer steps. Micro-batches add from their first layer on,
and so does a program that fills gradients with zeros; a weight that is used twice is added up once, not layer after
layer. In full precision there is no cast, and nothing tells.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.work.phases import FORWARD
from stepscope.derive.work.roles import Role
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.sequence import SAME_SIZE, Sequence
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, Mask
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "unused-gradients"

TRAINED_LAYERS = Threshold(
    4,
    "products of the backward pass",
    "of two layers that are trained: a single one may compute with other numbers, and have no cast in micro-batches",
    ("tests/findings/test_work_for_nothing.py",),
)
ADDED_TO = Threshold(
    80.0,
    "% of the layers behind",
    "a layer has two products backward, one of them for its weight; the first of a network has that one alone",
    ("tests/findings/test_work_for_nothing.py", "tests/data/pairs"),
)
FROZEN_LAYERS = Threshold(
    2,
    "layers",
    "a single addition is of a weight that is used twice, such as an embedding's",
    ("tests/findings/test_work_for_nothing.py",),
)

_ADD = r"CUDAFunctor_add"
#: Blocks round sizes up to this many elements.
_BLOCK = 1024


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of such an end: nothing; NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    if not sequence.optimizer.any() or not sequence.back.any():
        return left
    begin = _begin(sequence)
    if begin is not None:
        left[free & sequence.back & (np.arange(len(left)) >= begin)] = 0.0
    return left


def _begin(sequence: Sequence) -> int | None:
    """Where the end of the backward pass begins that nothing is trained by; None where there is none."""
    heavy = np.flatnonzero(sequence.heavy & sequence.back)
    added = _added(sequence)
    if not len(added) or not len(heavy) or (sequence.phase[heavy[0] :] == FORWARD).any():
        return None
    before = heavy[heavy < added[0]]
    behind = heavy[len(before) - 2 :] if len(before) >= 2 else heavy
    layers = len(np.unique(np.searchsorted(heavy, added)))
    if len(before) - 2 < TRAINED_LAYERS.value or layers < FROZEN_LAYERS.value:
        return None
    if 2 * layers < ADDED_TO.share * len(behind):
        return None
    casts = np.flatnonzero(sequence.kinds.are(Role.CAST) & sequence.back)
    trained = casts[casts < behind[0]]
    return int(trained[-1]) + 1 if len(trained) else int(behind[0])


def _added(sequence: Sequence) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Additions of a gradient to what is there: behind a cast of as many numbers."""
    add = sequence.data.profile.names_with(_ADD)[sequence.data.name[sequence.ops]] & sequence.back
    cast, elements = sequence.kinds.are(Role.CAST) & sequence.back, sequence.sizes.elements
    at = np.flatnonzero(add[1:] & cast[:-1]) + 1
    apart = np.abs(elements[at] - elements[at - 1])
    return at[(apart <= _BLOCK) | (apart <= SAME_SIZE.share * elements[at])]


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("unused-gradients", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        "the backward pass ends with layers whose gradients are added to those of earlier steps: no optimizer uses "
        f"them, or resets them. That takes {about(lost.took_ns)} on rank {lost.rank}, {lost.most}",
        advice("unused-gradients"),
    )


remedy, detect = claimed(ID, _worded)

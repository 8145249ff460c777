"""A forward pass that nothing is trained by: a second one, for metrics, whose results the first has too.

What it could save is the step replayed without the kernels of that pass and their launches. A trace does not say what
the results are for: a teacher or a reference model of the same size is needed, so that the cause is only possible.

The forward pass runs twice in a step, and the backward pass is that of one. Passes are told by how they begin: the
first kernels of the step's forward pass, with their grids, come again, and those of the backward pass do not as often;
between them layers repeat, else it is a layer that begins. What a trainer computes before its first pass, such as how
many tokens count, does not come again: a pass may begin behind it. Accumulation and pipelines have as many of both. Two
passes may have one backward pass, as two towers have: of a layer that is trained it has two products for each of the
forward pass, one for each gradient. Where there are more passes than that accounts for, those that no backward pass
follows directly are for nothing that is trained. A rank that alone has one has more work than its peers. What is
computed again for the backward pass is another matter (`recomputation`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from stepscope.derive.replay.change import Change
from stepscope.derive.work.parts import layers
from stepscope.derive.work.phases import FORWARD, symbols_of
from stepscope.derive.work.roles import Role
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import wastes
from stepscope.findings.evidence.peers import stages
from stepscope.findings.evidence.sequence import Sequence
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ID = "unused-forward"

PASS_BEGINS = Threshold(
    4,
    "kernels",
    "with their grids: an embedding or a first convolution, and what comes next, begin no layer",
    ("tests/findings/test_work_for_nothing.py", "tests/data/pairs"),
)
BEFORE_A_PASS = Threshold(
    32,
    "kernels",
    "transformers' Trainer counts the tokens of a batch in 4; what is longer is work of another kind",
    ("tests/findings/test_work_for_nothing.py", "tests/data/pairs"),
)
TRAINED_PRODUCTS = Threshold(
    2.0,
    "products of the backward pass for each of the forward pass",
    "one for each gradient; the first layer's input has none",
    ("tests/findings/test_work_for_nothing.py",),
)
UNUSED_PASS = Threshold(
    0.75,
    "forward passes",
    "first layers, and layers that are not trained, have fewer products backward: by half where all are frozen but few",
    ("tests/findings/test_work_for_nothing.py",),
)


def claim(sequence: Sequence, free: Mask) -> F64:
    """What is left of each kernel of such a pass: nothing; NaN for others."""
    left = np.full(len(sequence.ops), np.nan)
    forward = sequence.phase == FORWARD
    at = np.flatnonzero(forward)
    if not sequence.optimizer.any() or not sequence.back.any() or len(at) < 2 * PASS_BEGINS.value:
        return left
    symbols = symbols_of(sequence.data, sequence.ops)
    begins = _passes(symbols[at], len(_begins(symbols[sequence.back])))
    if begins is None:
        return left
    edges = np.r_[at[begins], len(sequence.ops)]
    product = sequence.kinds.are(Role.PRODUCT, Role.CONVOLUTION) & sequence.kinds.matrix
    count = np.r_[0, np.cumsum(product & forward)]
    each = count[edges[1:]] - count[edges[:-1]]
    behind = np.r_[0, np.cumsum(sequence.back)]
    trained: Mask = behind[edges[1:]] > behind[edges[:-1]]
    usual = float(np.median(each[trained])) if trained.any() else 0.0
    backward = float((product & sequence.back).sum())
    if not usual or len(begins) - backward / (TRAINED_PRODUCTS.value * usual) < UNUSED_PASS.value:
        return left
    followed = np.zeros(len(symbols), dtype=bool)  # positions of passes that a backward pass follows
    followed[edges[0] :] = np.repeat(trained, np.diff(edges))
    used = np.unique(symbols[forward & followed])
    left[forward & free & ~followed & (np.arange(len(symbols)) >= edges[0]) & np.isin(symbols, used)] = 0.0
    return left


def _passes(symbols: I64, of_backward: int) -> I64 | None:
    """Where passes begin, where there are more than of the backward pass; None where nothing repeats."""
    for first in range(min(int(BEFORE_A_PASS.value), len(symbols))):
        begins = first + _begins(symbols[first:])
        if len(begins) > max(of_backward, 1) and _has_layers(symbols, begins):
            return begins
    return None


def _begins(symbols: I64) -> I64:
    """Where the first kernels of the sequence come, in the same order, without overlap."""
    length = min(int(PASS_BEGINS.value), len(symbols))
    same = np.ones(len(symbols) - length + 1, dtype=bool)
    for k in range(length):
        same &= symbols[k : len(symbols) - length + 1 + k] == symbols[k]
    equal = np.flatnonzero(same)
    return equal[np.r_[True, np.diff(equal) >= length]]


def _has_layers(symbols: I64, begins: I64) -> bool:
    """Whether layers repeat within what lies between two beginnings, and are most of it."""
    shortest = int(np.argmin(np.diff(begins)))
    one = layers(symbols[begins[shortest] : begins[shortest + 1]])
    return one.times > 1 and 2 * one.period * one.times >= int(np.diff(begins)[shortest])


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("unused-forward", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        "the forward pass runs twice, with the same kernels and grids, but the backward "
        f"pass has too few matmuls for both; the kernels of one take {about(lost.took_ns)} on rank {lost.rank}, "
        f"{lost.most}",
        advice("unused-forward"),
    )


def _by_rank(case: Case) -> dict[int, Waste]:
    """Of passes that the model makes: what a rank does and most ranks of its work do not is more work of that rank."""
    by_rank = wastes(case, ID)
    if not by_rank:
        return {}
    stage = stages(case)
    ranks = Counter(stage[rank] for rank in case.windows)
    having = Counter(stage[rank] for rank in by_rank)
    return {rank: waste for rank, waste in by_rank.items() if 2 * having[stage[rank]] > ranks[stage[rank]]}


def remedy(case: Case) -> Change:
    return change(case, case.once(_by_rank))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, case.once(_by_rank), lambda lost: _worded(case, lost), cause="possible")

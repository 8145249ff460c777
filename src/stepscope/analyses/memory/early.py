"""What was there before the recording: matched with the gradients that were seen, and told by what became of it.

A weight stands through the recording. A gradient of the step before is released before the next gradients come, a
state that is made anew while the optimizer steps. States that are changed in place stand as weights do, and are told
from them by their number alone.
"""

from __future__ import annotations

import numpy as np

from stepscope.analyses.memory import reasons
from stepscope.derive.memory.history import Blocks
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.threshold import Threshold

_MOST = Threshold(
    90.0,
    "% of the bytes of gradients",
    "each parameter has a gradient of its size: where fewer have a block from before, those blocks are something else",
    ("tests/analyses/memory/test_parts.py", "decision 0025"),
)


def before(blocks: Blocks, reason: I64, replaced: Mask, turns: I64, steps: bool) -> I64:
    """With what can be told of blocks from before. `replaced` are those that the optimizer released; `turns` are the
    moments at which the backward pass allocates; `steps` is whether an optimizer step was recorded."""
    early = reason == reasons.EARLY
    kept = early & (blocks.end >= blocks.end.max(initial=0))
    if not steps and (added := _added_to(blocks, reason, kept, turns)) is not None:
        return _activations(blocks, added, early & ~kept & ~replaced, turns)
    gradients = np.flatnonzero(np.isin(reason, (reasons.GRADIENT, reasons.OUTLIVES_PASS)))
    reason_of = reason
    if len(gradients):
        reason_of = _matched(blocks, reason_of, gradients, early, kept, replaced)
    elif (reason == reasons.STATE).any():
        reason_of = _of_states(blocks, reason_of, kept, replaced)
    elif not len(turns):
        reason_of = _three_each(blocks, np.where(kept, reasons.OLD, reason_of), kept)
    has_states = np.isin(reason_of, (reasons.STATE, reasons.LIKE_STATES, reasons.OLD_STATE)).any()
    if (reason_of == reasons.LIKE_GRADIENTS).any() and (has_states or not steps):
        reason_of = _frozen(blocks, reason_of, kept)
    return _activations(blocks, reason_of, early & ~kept & ~replaced, turns)


def _matched(blocks: Blocks, reason: I64, gradients: I64, early: Mask, kept: Mask, replaced: Mask) -> I64:
    """Every parameter has a gradient of its size. Of blocks that stand, one for each gradient are weights. Where
    1 + k stand for each, and the optimizer makes no states anew, k of them are its states. (States in another
    precision are r times as large.) What is left over is unknown."""
    size, count = _of_one_step(blocks, gradients)
    at_size = [np.flatnonzero(kept & (blocks.requested == s)) for s in size.tolist()]
    times = np.array([len(rows) for rows in at_size]) // count
    covered = times >= 1
    if (size * count)[covered].sum() < _MOST.share * (size * count).sum():
        return reason
    reason_of = reason.copy()
    gone = early & ~kept & np.isin(blocks.requested, size)
    reason_of[gone & replaced] = reasons.OLD_STATE
    for s, n in zip(size.tolist(), count.tolist(), strict=True):
        reason_of[np.flatnonzero(gone & ~replaced & (blocks.requested == s))[:n]] = reasons.OLD_GRADIENT
    anew = (reason == reasons.STATE).any() or (gone & replaced).any()
    same = bool((times == times[0]).all())
    states = 0 if anew or not same else int(times[0]) - 1
    for rows, n in zip(at_size, count.tolist(), strict=True):
        reason_of[rows[:n]] = reasons.LIKE_GRADIENTS
        reason_of[rows[n : n * (1 + states)]] = reasons.LIKE_STATES
    return reason_of if anew or states else _larger_states(blocks, reason_of, size, count)


def _added_to(blocks: Blocks, reason: I64, kept: Mask, turns: I64) -> I64 | None:
    """Gradients that nothing takes away: a backward pass makes one more for each parameter, adds it, and releases it.
    For every one that a pass makes, two blocks stand: the weight and its gradient. None where that is not so."""
    passed = np.isin(reason, (reasons.BACKWARD_ONLY, reasons.OUTLIVES_PASS))
    made = passed & (blocks.end < blocks.end.max(initial=0))
    size, stand = np.unique(
        blocks.requested[kept & np.isin(blocks.requested, blocks.requested[made])], return_counts=True
    )
    made_of = np.array([int((made & (blocks.requested == s)).sum()) for s in size.tolist()], dtype=np.int64)
    forward = np.unique(blocks.begin[np.isin(reason, (reasons.SAVED, reasons.FORWARD_ONLY))])
    passes = len(np.unique(np.searchsorted(forward, turns)))
    twice = (stand % 2 == 0) & (2 * made_of == passes * stand)
    if not twice.any() or (size * stand)[twice].sum() < _MOST.share * (size * stand).sum():
        return None
    reason_of = np.where(passed, reasons.BACKWARD_ONLY, reason)
    for s, n in zip(size[twice].tolist(), stand[twice].tolist(), strict=True):
        rows = np.flatnonzero(kept & (blocks.requested == s))
        reason_of[rows[: n // 2]] = reasons.LIKE_GRADIENTS
        reason_of[rows[n // 2 :]] = reasons.ADDED_TO
    return reason_of


def _frozen(blocks: Blocks, reason_of: I64, kept: Mask) -> I64:
    """What stands without a gradient is frozen weights (LoRA) where it is more than the weights that have one, in
    number and in bytes; where it is less, it may be anything: tables, inputs, results."""
    trained = reason_of == reasons.LIKE_GRADIENTS
    rest = kept & (reason_of == reasons.EARLY) & ~np.isin(blocks.requested, np.unique(blocks.requested[trained]))
    frozen = rest.sum() > trained.sum() and int(blocks.requested[rest].sum()) > int(blocks.requested[trained].sum())
    return np.where(rest & frozen, reasons.OLD, reason_of)


def _of_states(blocks: Blocks, reason: I64, kept: Mask, replaced: Mask) -> I64:
    """Without gradients, the states that the optimizer made tell the sizes of parameters: one or two of each. Of what
    stands while it steps, the first of each size is the weight, and the second its gradient."""
    states = np.flatnonzero(reason == reasons.STATE)
    size, count = _of_one_step(blocks, states)
    count = count // 2 if (count % 2 == 0).all() else count
    reason_of = reason.copy()
    reason_of[(reason == reasons.EARLY) & ~kept & replaced & np.isin(blocks.requested, size)] = reasons.OLD_STATE
    for s, n in zip(size.tolist(), count.tolist(), strict=True):
        rows = np.flatnonzero(kept & (blocks.requested == s))
        reason_of[rows[:n]] = reasons.LIKE_GRADIENTS
        reason_of[rows[n : 2 * n]] = reasons.KEPT_GRADIENT
    return reason_of


def _three_each(blocks: Blocks, reason_of: I64, kept: Mask) -> I64:
    """Old blocks of which every size comes three, six, nine … times: a weight each, and two states of Adam. Sizes of a
    model's weights alone do not do that: its layers have four matrices of one size and two norms, and one norm is
    left."""
    rows = np.flatnonzero(kept)
    size, count = np.unique(blocks.requested[rows], return_counts=True)
    often = count >= 3
    if not often.any() or (count[often] % 3).any():
        return reason_of
    if (size * count)[often].sum() < _MOST.share * (size * count).sum():
        return reason_of
    reason_of = np.where(kept & ~np.isin(blocks.requested, size[often]), reasons.EARLY, reason_of)
    for s, n in zip(size[often].tolist(), (count[often] // 3).tolist(), strict=True):
        reason_of[rows[blocks.requested[rows] == s][n:]] = reasons.TWO_MORE
    return reason_of


def _of_one_step(blocks: Blocks, gradients: I64) -> tuple[I64, I64]:
    """Sizes of a step's gradients, and how many of each: of the moment at which most of them are alive."""
    begin, end = blocks.begin[gradients], blocks.end[gradients]
    moments = np.unique(begin)
    alive = np.searchsorted(np.sort(begin), moments, side="right") - np.searchsorted(
        np.sort(end), moments, side="right"
    )
    moment = moments[int(np.argmax(alive))]
    return np.unique(blocks.requested[gradients[(begin <= moment) & (end > moment)]], return_counts=True)


def _larger_states(blocks: Blocks, reason_of: I64, size: I64, count: I64) -> I64:
    """States of another precision: k blocks of r times each gradient's size, for one k and r, and no other."""
    rest = np.flatnonzero(reason_of == reasons.EARLY)
    for ratio in (2, 4):
        have = np.array([int((blocks.requested[rest] == ratio * s).sum()) for s in size.tolist()])
        times = have // count
        if times[0] >= 1 and (times == times[0]).all() and (have == count * times).all():
            reason_of[rest[np.isin(blocks.requested[rest], ratio * size)]] = reasons.LIKE_STATES
    return reason_of


def _activations(blocks: Blocks, reason: I64, released: Mask, turns: I64) -> I64:
    """Blocks that a backward pass released, or of sizes that the forward pass allocates and holds: activations of the
    pass before."""
    forward = np.isin(reason, (reasons.SAVED, reasons.HELD, reasons.OOM)) & (blocks.begin != NONE)
    alike = np.isin(blocks.requested, np.unique(blocks.requested[forward]))
    if len(turns):
        alike |= (blocks.end >= turns[0]) & (blocks.end <= turns[-1])
    return np.where(released & (reason == reasons.EARLY) & alike, reasons.OLD_ACTIVATION, reason)

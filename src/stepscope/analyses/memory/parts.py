"""What each block is: weights, gradients, optimizer states, activations and so on (semantics §17).

Decided by who allocated it (`origin`) and how long it lived: across an optimizer step, into the backward pass, or
neither. Sizes decide twice only: what was there before the recording is matched with the gradients, and a workspace of
cuBLAS has a size of its own. What cannot be told is `unknown`, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analyses.memory import reasons
from stepscope.analyses.memory.early import before
from stepscope.analyses.memory.origin import Origins
from stepscope.analyses.memory.rules import (
    BACKWARD,
    COMM,
    KV,
    MODULE,
    OPTIMIZER,
    RECOMPUTE,
    WORKSPACE,
    WORKSPACES,
)
from stepscope.derive.memory.history import Blocks, History
from stepscope.intervals.arrays import I64, NONE, Mask, take
from stepscope.model.profile import Profile

_OPTIMIZER_RANGE = r"^Optimizer\.step#"


@dataclass(frozen=True)
class Decided:
    """Part and reason of each block, and when the optimizer stepped, as events."""

    part: I64
    reason: I64
    stack: I64
    steps: I64  # moments at which steps of the optimizer begin
    backward: Mask  # blocks that the backward pass allocated
    optimizing: Mask  # blocks that the optimizer allocated


def decide(profile: Profile, history: History, stacks: Origins) -> Decided:
    """Every block of a device."""
    blocks, n = history.blocks, history.events
    stack = blocks.chain if stacks.of_event is None else take(stacks.of_event, blocks.begin, NONE)
    trait = [stacks.has(t, stack) for t in range(len(stacks.traits))]
    python = take(stacks.python, stack, False)
    begins, ends = _optimizer(profile, history, trait[OPTIMIZER])
    in_step = trait[OPTIMIZER] | _inside(blocks.begin, begins, ends)
    # Threads of autograd have no Python: where stacks were recorded and this one has none, it is theirs.
    engine = trait[BACKWARD] | (stacks.recorded & (blocks.begin != NONE) & ~python & ~in_step)
    again = trait[RECOMPUTE]
    backward = engine & ~again
    traced = stacks.recorded & ((stack != NONE) | engine)

    early = blocks.begin == NONE
    next_step = _next(begins, blocks.begin)  # the first step of the optimizer after it was allocated
    lives_into_step = (next_step < n) & (blocks.end > next_step)
    outlives = lives_into_step & (blocks.end > _next(begins, next_step)) | (
        lives_into_step & (blocks.end >= n) & (blocks.end > _next(ends, next_step))
    )
    turns = np.unique(blocks.begin[backward])  # moments at which the backward pass allocates
    into_backward = blocks.end > np.minimum(_next(turns, blocks.begin), n)
    oom = history.oom
    ran_out = (_next(oom, blocks.begin) < n) & (blocks.end > _next(oom, blocks.begin))
    at_end = blocks.end >= n
    own_step_ends = _next(ends, blocks.begin)
    workspace = trait[WORKSPACE] | _workspace(blocks, stacks, stack, outlives | at_end, python)
    # What the backward pass leaves behind for an optimizer that the recording does not have are gradients.
    forward = np.unique(blocks.begin[~engine & ~again & ~in_step & ~early])
    left = backward & ~(next_step < n) & ~workspace & _of_parameters(blocks, early | trait[MODULE], at_end)
    left &= blocks.end > _last(turns, np.minimum(_next(forward, blocks.begin), n))
    if 10 * int(blocks.requested[left & at_end].sum()) >= 9 * int(blocks.requested[left].sum()):
        left &= at_end  # the rest are late temporaries of the last pass
    # What the forward pass holds at the end, it holds for a backward pass that did not come.
    no_step = ~(next_step < n)
    held = at_end & no_step & (blocks.begin > (int(turns[-1]) if len(turns) else NONE)) & traced & python
    released = _released_each_step(blocks, backward & lives_into_step & ~workspace, outlives)

    rules = (
        (trait[MODULE] & at_end & ~early, reasons.MODULE),
        # Sharded gradients come out of a collective.
        (backward & lives_into_step & ~outlives & ~workspace & ~in_step, reasons.GRADIENT),
        (trait[COMM] & ~early, reasons.COMM),
        (trait[KV] & ~early, reasons.KV),
        (workspace & ~early, reasons.WORKSPACE),
        (in_step & ~early & ((blocks.end > own_step_ends) | at_end), reasons.STATE),
        (in_step & ~early, reasons.IN_STEP),
        (early & trait[MODULE], reasons.EARLY_MODULE),
        (early, reasons.EARLY),
        (~traced, reasons.NO_STACK),
        (again & into_backward & ~lives_into_step, reasons.AGAIN),
        (backward & lives_into_step & ~(outlives & released), reasons.GRADIENT),
        (backward & lives_into_step, reasons.OUTLIVES),
        (left, reasons.OUTLIVES_PASS),
        (backward & at_end, reasons.TOO_EARLY),
        (backward, reasons.BACKWARD_ONLY),
        (lives_into_step & outlives, reasons.OUTLIVES),
        (ran_out & (_next(oom, blocks.begin) < _next(turns, blocks.begin)), reasons.OOM),
        (into_backward, reasons.SAVED),
        (held & ~_inside(blocks.begin, begins, ends), reasons.HELD),
        (at_end, reasons.TOO_EARLY),
        (np.ones(len(early), dtype=bool), reasons.FORWARD_ONLY if len(turns) else reasons.RELEASED),
    )
    reason = np.select([mask for mask, _ in rules], [np.full(len(early), code) for _, code in rules])
    reason = _like_others(blocks, stack, reason)
    reason = before(blocks, reason, _inside(blocks.end, begins, ends), turns, bool(len(begins)))
    return Decided(reasons.PART_OF[reason], reason, stack, begins, engine | again, in_step)


def _optimizer(profile: Profile, history: History, by_stack: Mask) -> tuple[I64, I64]:
    """Steps of the optimizer: the first moment within each, and the first after it.

    Torch marks them; where it did not, they are the runs of allocations that the optimizer's code made.
    """
    n = history.events
    if history.time is not None and profile.has("ranges"):
        ranges = dict(profile.by_rank("ranges"))[history.rank]
        marked = profile.names.str.contains(_OPTIMIZER_RANGE).to_numpy()
        if ranges.height and (rows := marked[ranges["name"].to_numpy()]).any():
            spans = ranges.filter(pl.Series(rows))
            # Times of threads need not ascend: a moment is in the step from the first event that is not before it.
            reached = np.maximum.accumulate(history.time)
            begin = np.searchsorted(reached, spans["start_ns"].to_numpy(), side="left")
            return begin, np.searchsorted(reached, spans["end_ns"].to_numpy(), side="right")
    rows = np.unique(history.blocks.begin[by_stack & (history.blocks.begin != NONE)])
    if not len(rows):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # Between two steps the backward pass allocates; within one only the optimizer does.
    others = np.unique(history.blocks.begin[~by_stack & (history.blocks.begin != NONE)])
    run = np.searchsorted(others, rows)
    first = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])
    last = np.r_[first[1:] - 1, len(rows) - 1]
    return rows[first], np.minimum(rows[last] + 1, n)


def _next(moments: I64, after: I64) -> I64:
    """The first of `moments` (ascending) after each; a moment that never comes is far away."""
    padded = np.r_[moments, np.iinfo(np.int64).max]
    moments_after: I64 = padded[np.searchsorted(moments, after, side="right")]
    return moments_after


def _inside(at: I64, begins: I64, ends: I64) -> Mask:
    which = np.searchsorted(begins, at, side="right") - 1
    return (which >= 0) & (at < take(ends, which, NONE))


def _workspace(blocks: Blocks, stacks: Origins, stack: I64, lasting: Mask, python: Mask) -> Mask:
    """Without native frames: of a workspace's size, allocated where matrices are multiplied, and never released."""
    where = take(stacks.multiplies, stack, False) | ~python
    workspace: Mask = lasting & where & np.isin(blocks.requested, WORKSPACES) & (blocks.begin != NONE)
    return workspace


def _released_each_step(blocks: Blocks, gradients: Mask, outlives: Mask) -> bool:
    """Whether gradients are released in the step that used them (`zero_grad(set_to_none=True)`), most bytes of them."""
    kept = int(blocks.requested[gradients & outlives].sum())
    return 2 * kept < int(blocks.requested[gradients].sum())


def _like_others(blocks: Blocks, stack: I64, reason: I64) -> I64:
    """What is alive when the recording ends, as blocks of the same stack and size were that did not live to its end.

    The last step's logits are held by the program, as those of the steps before it were: their fate tells. Only where
    all of those were the same.
    """
    open_ended = (
        np.isin(reason, (reasons.OUTLIVES, reasons.TOO_EARLY, reasons.HELD))
        & (blocks.end >= blocks.end.max(initial=0))
        & (stack != NONE)
    )
    if not open_ended.any():
        return reason
    table = pl.DataFrame({"stack": stack, "size": blocks.requested, "reason": reason, "open": open_ended})
    settled = table.filter(~pl.col("open") & (pl.col("stack") != NONE)).group_by("stack", "size")
    agreed = settled.agg(pl.col("reason").min().alias("low"), pl.col("reason").max().alias("high"))
    joined = table.join(agreed, on=["stack", "size"], how="left", maintain_order="left")
    same = (joined["open"] & (joined["low"] == joined["high"])).fill_null(False).to_numpy()
    return np.where(same, joined["low"].fill_null(0).to_numpy(), reason)


def _of_parameters(blocks: Blocks, standing: Mask, at_end: Mask) -> Mask:
    """Blocks of the size of one that stands through the recording, as weights do; all, where none stands."""
    sizes = np.unique(blocks.requested[standing & at_end])
    every: Mask = np.isin(blocks.requested, sizes) if len(sizes) else np.ones(len(at_end), dtype=bool)
    return every


def _last(moments: I64, before: I64) -> I64:
    """The last of `moments` (ascending) before each; NONE where there is none."""
    moments_before: I64 = np.r_[NONE, moments][np.searchsorted(moments, before, side="left")]
    return moments_before

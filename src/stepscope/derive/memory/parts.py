"""What each block is: weights, gradients, optimizer states, activations and so on (semantics §17).

Decided by who allocated it (`origin`) and how long it lived: across an optimizer step, into the backward pass, or
neither. Sizes decide twice only: what was there before the recording is matched with the gradients, and a workspace of
cuBLAS has a size of its own. What cannot be told is `unknown`, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.derive.memory.history import Blocks, History
from stepscope.derive.memory.origin import Origins
from stepscope.derive.memory.rules import (
    ACTIVATIONS,
    BACKWARD,
    COMM,
    COMMUNICATION,
    GRADIENTS,
    KV,
    KV_CACHE,
    MODULE,
    OPTIMIZER,
    RECOMPUTE,
    STATES,
    TEMPORARY,
    UNKNOWN,
    WEIGHTS,
    WORKSPACE,
    WORKSPACES,
)
from stepscope.intervals.arrays import I64, NONE, Mask, take
from stepscope.model.profile import Profile

_OPTIMIZER_RANGE = r"^Optimizer\.step#"

#: Why a block is what it is. The order is that of the decisions: the first that applies.
REASONS = (
    "communication's buckets or buffers",
    "a cache of keys and values",
    "a library's workspace",
    "a module's, alive at the end",
    "the optimizer's, outlives its step",
    "the optimizer's, for its step only",
    "forward, alive in backward",
    "computed again for backward",
    "forward, alive when memory ran out",
    "backward, alive when the optimizer steps",
    "backward, gone before the optimizer steps",
    "forward, gone before backward",
    "before recording: a gradient's size",
    "before recording: several of a gradient's size",
    "before recording: a module's",
    "before recording: sizes do not tell",
    "outlives the step that allocated it",
    "alive when the recording ends",
    "no stack was recorded",
    "before the trace: not named",
    "released; no backward pass is recorded",
)
(
    _COMM, _KV, _WORKSPACE, _MODULE, _STATE, _IN_STEP, _SAVED, _AGAIN, _OOM, _GRADIENT, _BACKWARD_ONLY, _FORWARD_ONLY,
    _LIKE_GRADIENTS, _LIKE_STATES, _EARLY_MODULE, _EARLY, _OUTLIVES, _TOO_EARLY, _NO_STACK, UNNAMED, _RELEASED,
) = range(len(REASONS))  # fmt: skip

_PART = np.array(
    [
        COMMUNICATION, KV_CACHE, TEMPORARY, WEIGHTS, STATES, TEMPORARY, ACTIVATIONS, ACTIVATIONS, ACTIVATIONS,
        GRADIENTS, TEMPORARY, TEMPORARY, WEIGHTS, STATES, WEIGHTS, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
        TEMPORARY,
    ]
)  # fmt: skip


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
    told = stacks.recorded & ((stack != NONE) | engine)

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
    released = _released_each_step(blocks, backward & lives_into_step & ~workspace, outlives)

    rules = (
        (trait[MODULE] & at_end & ~early, _MODULE),
        # Sharded gradients come out of a collective.
        (backward & lives_into_step & ~outlives & ~workspace & ~in_step, _GRADIENT),
        (trait[COMM] & ~early, _COMM),
        (trait[KV] & ~early, _KV),
        (workspace & ~early, _WORKSPACE),
        (in_step & ~early & (blocks.end > own_step_ends), _STATE),
        (in_step & ~early, _IN_STEP),
        (early & trait[MODULE], _EARLY_MODULE),
        (early, _EARLY),
        (~told, _NO_STACK),
        (again & into_backward & ~lives_into_step, _AGAIN),
        (backward & lives_into_step & ~(outlives & released), _GRADIENT),
        (backward & lives_into_step, _OUTLIVES),
        (backward & at_end, _TOO_EARLY),
        (backward, _BACKWARD_ONLY),
        (lives_into_step & outlives, _OUTLIVES),
        (ran_out & (_next(oom, blocks.begin) < _next(turns, blocks.begin)), _OOM),
        (into_backward, _SAVED),
        (at_end, _TOO_EARLY),
        (np.ones(len(early), dtype=bool), _FORWARD_ONLY if len(turns) else _RELEASED),
    )
    reason = np.select([mask for mask, _ in rules], [np.full(len(early), code) for _, code in rules])
    reason = _before(blocks, _like_others(blocks, stack, reason))
    return Decided(_PART[reason], reason, stack, begins, engine | again, in_step)


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
    found: I64 = padded[np.searchsorted(moments, after, side="right")]
    return found


def _inside(at: I64, begins: I64, ends: I64) -> Mask:
    which = np.searchsorted(begins, at, side="right") - 1
    return (which >= 0) & (at < take(ends, which, NONE))


def _workspace(blocks: Blocks, stacks: Origins, stack: I64, lasting: Mask, python: Mask) -> Mask:
    """Without native frames: of a workspace's size, allocated where matrices are multiplied, and never released."""
    where = take(stacks.multiplies, stack, False) | ~python
    found: Mask = lasting & where & np.isin(blocks.requested, WORKSPACES) & (blocks.begin != NONE)
    return found


def _released_each_step(blocks: Blocks, gradients: Mask, outlives: Mask) -> bool:
    """Whether gradients are released in the step that used them (`zero_grad(set_to_none=True)`), most bytes of them."""
    kept = int(blocks.requested[gradients & outlives].sum())
    return 2 * kept < int(blocks.requested[gradients].sum())


def _like_others(blocks: Blocks, stack: I64, reason: I64) -> I64:
    """What is alive when the recording ends, as blocks of the same stack and size were that did not live to its end.

    The last step's logits are held by the program, as those of the steps before it were: their fate tells. Only where
    all of those were the same.
    """
    open_ended = np.isin(reason, (_OUTLIVES, _TOO_EARLY)) & (blocks.end >= blocks.end.max(initial=0)) & (stack != NONE)
    if not open_ended.any():
        return reason
    table = pl.DataFrame({"stack": stack, "size": blocks.requested, "reason": reason, "open": open_ended})
    settled = table.filter(~pl.col("open") & (pl.col("stack") != NONE)).group_by("stack", "size")
    known = settled.agg(pl.col("reason").min().alias("low"), pl.col("reason").max().alias("high"))
    found = table.join(known, on=["stack", "size"], how="left", maintain_order="left")
    same = (found["open"] & (found["low"] == found["high"])).fill_null(False).to_numpy()
    return np.where(same, found["low"].fill_null(0).to_numpy(), reason)


def _before(blocks: Blocks, reason: I64) -> I64:
    """What was there before the recording, matched with the gradients that were seen.

    Every parameter has a gradient of its size. Where, for every size, at least one block from before stands for each
    gradient and less than two do, one for each are the weights, and what is left over is unknown. Where at least 1 + k
    do and less than 2 + k, for one k of all sizes, k states of the optimizer are among them. (States in another
    precision are r times as large.) Otherwise their sizes do not tell.
    """
    gradients = np.flatnonzero(reason == _GRADIENT)
    early = np.flatnonzero(reason == _EARLY)
    if not len(gradients) or not len(early):
        return reason
    size, count = _of_one_step(blocks, gradients)
    at_size = [early[blocks.requested[early] == s] for s in size.tolist()]
    times = np.array([len(rows) for rows in at_size]) // count
    if times[0] < 1 or (times != times[0]).any():
        return reason
    if (reason == _STATE).any():  # the optimizer made its states while it was recorded
        times = np.ones_like(times)
    found = reason.copy()
    for rows, n in zip(at_size, count.tolist(), strict=True):
        found[rows[:n]] = _LIKE_GRADIENTS
        found[rows[n : n * int(times[0])]] = _LIKE_STATES
    return _larger_states(blocks, found, early, size, count) if times[0] == 1 else found


def _of_one_step(blocks: Blocks, gradients: I64) -> tuple[I64, I64]:
    """Sizes of a step's gradients, and how many of each: of the moment at which most of them are alive."""
    begin, end = blocks.begin[gradients], blocks.end[gradients]
    moments = np.unique(begin)
    alive = np.searchsorted(np.sort(begin), moments, side="right") - np.searchsorted(
        np.sort(end), moments, side="right"
    )
    moment = moments[int(np.argmax(alive))]
    return np.unique(blocks.requested[gradients[(begin <= moment) & (end > moment)]], return_counts=True)


def _larger_states(blocks: Blocks, found: I64, early: I64, size: I64, count: I64) -> I64:
    """States of another precision: k blocks of r times each gradient's size, for one k and r, and no other."""
    if (found == _STATE).any():
        return found
    rest = early[found[early] == _EARLY]
    for ratio in (2, 4):
        have = np.array([int((blocks.requested[rest] == ratio * s).sum()) for s in size.tolist()])
        times = have // count
        if times[0] >= 1 and (times == times[0]).all() and (have == count * times).all():
            found[rest[np.isin(blocks.requested[rest], ratio * size)]] = _LIKE_STATES
    return found

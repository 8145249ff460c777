"""Why memory ran out: what was asked for, what was left, what grew, and what would have made it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import polars as pl

from stepscope.analyses.memory.changes import RANKS
from stepscope.analyses.memory.ledger import Ledger
from stepscope.analyses.memory.origin import NO_FRAME, NOT_RECORDED
from stepscope.analyses.memory.room import room
from stepscope.analyses.memory.rules import BACKWARD, LOSS, OPTIMIZER, PARTS
from stepscope.intervals.arrays import I64, NONE, take
from stepscope.model.statement import listed
from stepscope.model.threshold import Threshold
from stepscope.model.units import size

#: Changes that are named.
_MOST = 3
_GROWTH = Threshold(
    1.0,
    "% of what is reserved",
    "a part that is larger at each step of the optimizer by less in all is rounding of the allocator",
    ("tests/analyses/memory/test_parts.py",),
)
_FEWEST_STEPS = Threshold(
    3,
    "steps of the optimizer",
    "two sizes always grow or shrink",
    ("tests/analyses/memory/test_parts.py",),
)

_OUTSIDE = Threshold(
    5.0,
    "% of what is reserved",
    "a context of CUDA and NCCL's buffers are always there; what a GPU has is a few per cent more than is sold",
    ("tests/analyses/memory/test_parts.py",),
)


class Growth(TypedDict):
    """A part that was larger at every step of the optimizer than at the one before, and the line most of it is from."""

    part: str
    bytes_per_step: int
    frame: str | None


class Fit(TypedDict):
    """A change to the program, and what it would save."""

    change: str
    saves_bytes: int
    at_most: bool


class OutOfMemory(TypedDict):
    """Of the moment at which memory ran out. `to_come_bytes`: what the step would yet have allocated, at most."""

    asked_bytes: int
    free_bytes: int | None
    reserved_bytes: int
    allocated_bytes: int
    cached_bytes: int
    fragmented_bytes: int | None
    own_limit: bool
    lacks_bytes: int
    outside_bytes: int | None
    to_come_bytes: int
    phase: str
    frame: str | None
    parts: dict[str, int]
    grows: list[Growth]
    would_fit: list[Fit]


def out_of_memory(ledger: Ledger, dp: int, memory: int | None = None) -> OutOfMemory | None:
    """The first time that memory ran out; None where it did not.

    `dp` is the ranks to shard over, `memory` what the GPU has, as sold: in truth it has a little more.
    """
    history = ledger.history
    if not len(history.oom):
        return None
    event = int(history.oom[0])
    asked, free = int(history.size[event]), int(history.free_bytes[event])
    left = free if free != NONE else None
    space = room(history, event)
    at = {name: int(ledger.part_over_time(name)[event + 1]) for name in PARTS}
    reserved = int(history.reserved[event + 1])
    # With enough free on the device it was the process's own limit that was reached, which is not recorded.
    limited = left is not None and left >= asked
    lacks = asked if limited else asked - (left or 0)
    outside = memory - left - reserved if memory is not None and left is not None and not limited else 0
    grows, grown = _growing(ledger, event)
    stacks, stack = ledger.stacks, ledger.stacks_of_events[event : event + 1]
    frame = str(stacks.named(stack)[0]) if stacks.recorded else NOT_RECORDED
    fits = _changes(at, asked, space.cached + (space.fragmentation or 0), dp, grown, bool(stacks.has(LOSS, stack)[0]))
    return {
        "asked_bytes": asked,
        "free_bytes": left,
        "reserved_bytes": reserved,
        "allocated_bytes": int(history.allocated[event + 1]),
        "cached_bytes": space.cached,
        "fragmented_bytes": space.fragmentation,
        "own_limit": limited,
        "lacks_bytes": lacks,
        "outside_bytes": outside if outside > _OUTSIDE.share * reserved else None,
        "to_come_bytes": _to_come(ledger, at, event),
        "phase": _phase(ledger, event, stack),
        "frame": frame if frame not in (NO_FRAME, NOT_RECORDED) else None,
        "parts": {name: held for name, held in at.items() if held},
        "grows": grows,
        "would_fit": [one for one in fits if one["saves_bytes"] >= lacks][:_MOST],
    }


def oom_summary(of_ranks: Sequence[Ledger], dp: int, memory: int | None = None) -> dict[str, Any]:
    """The same of all devices that ran out, as rows: figures, parts that grew, changes that would fit."""
    tables: dict[str, list[dict[str, object]]] = {"out_of_memory": [], "grows": [], "would_fit": []}
    for ledger in of_ranks:
        if (ran_out := out_of_memory(ledger, dp, memory)) is None:
            continue
        who = {"rank": ledger.history.rank, "device": ledger.history.device}
        tables["out_of_memory"].append({**who, **{k: v for k, v in ran_out.items() if k not in (*tables, "parts")}})
        tables["grows"] += [{**who, **growth} for growth in ran_out["grows"]]
        tables["would_fit"] += [{**who, **fit} for fit in ran_out["would_fit"]]
    return {name: rows for name, rows in tables.items() if rows}


def _phase(ledger: Ledger, event: int, stack: I64) -> str:
    """Whose request it was: `in the backward pass of step 2`."""
    stacks = ledger.stacks
    if not stacks.recorded:
        return f"at event {event + 1} of {ledger.history.events}"
    engine = stacks.has(BACKWARD, stack) | ~take(stacks.python, stack, False)
    return ledger.pass_of(event, bool(stacks.has(OPTIMIZER, stack)[0]), bool(engine[0]))


def _changes(at: dict[str, int], asked: int, idle: int, dp: int, grown: int, loss: bool) -> list[Fit]:
    """From what changes the program least to what changes it most; arithmetic on the parts at that moment."""
    ranks = dp if dp > 1 else RANKS
    kept = 1 - 1 / ranks
    tokens = at["activations"] + at["temporary"]
    states, gradients, weights = at["optimizer states"], at["gradients"], at["weights"]
    listing = (
        ("not keeping what grows", grown, True),
        ("expandable segments", idle, True),
        ("a loss in chunks", asked if loss else 0, True),
        ("half the tokens of a micro-batch", (tokens + asked) // 2 if tokens else 0, True),
        ("half the tokens in the KV cache", at["KV cache"] // 2, True),
        ("recomputation", at["activations"], True),
        (f"ZeRO 1 over {ranks} ranks", int(states * kept), False),
        (f"ZeRO 2 over {ranks} ranks", int((states + gradients) * kept) if gradients else 0, False),
        (f"ZeRO 3 over {ranks} ranks", int((states + gradients + weights) * kept) if weights else 0, False),
    )
    return [{"change": name, "saves_bytes": saves, "at_most": bound} for name, saves, bound in listing if saves > 0]


def _to_come(ledger: Ledger, at: dict[str, int], event: int) -> int:
    """Gradients and two states for each weight, in the weights' type, where the recording has no step yet."""
    began = int(ledger.part_over_time("optimizer states")[: event + 2].max())
    certain = at["unknown"] < at["weights"] and at["activations"] > 0
    if began or not certain or len(ledger.decided.steps):
        return 0
    return max(0, at["weights"] - at["gradients"]) + 2 * at["weights"]


def _growing(ledger: Ledger, event: int) -> tuple[list[Growth], int]:
    """Parts that are larger at every step of the optimizer than at the one before, and by how much they are in all."""
    steps = ledger.decided.steps[ledger.decided.steps <= event]
    if len(steps) < _FEWEST_STEPS.count:
        return [], 0
    growing: list[Growth] = []
    total = 0
    for number, name in enumerate(PARTS):
        held = ledger.part_over_time(name)[np.minimum(steps, event)]
        more, whole = np.diff(held), int(held[-1] - held[0])
        if (more > 0).all() and whole >= _GROWTH.share * int(ledger.history.reserved[event + 1]):
            frame = _frame_of_growth(ledger, number, int(steps[0]), int(steps[-1]))
            growing.append({"part": name, "bytes_per_step": int(np.median(more)), "frame": frame})
            total += whole
    return growing, total


def _frame_of_growth(ledger: Ledger, part: int, first: int, last: int) -> str | None:
    """The line that most of what a part has gained is from."""
    blocks, stacks = ledger.history.blocks, ledger.stacks
    rows = np.flatnonzero((ledger.decided.part == part) & blocks.alive(last) & ~blocks.alive(first))
    if not stacks.recorded or not len(rows):
        return None
    frames = stacks.named(ledger.decided.stack[rows])
    sums = pl.DataFrame({"frame": frames, "bytes": blocks.requested[rows]}).group_by("frame").sum()
    most = str(sums.sort("bytes", "frame", descending=[True, False])["frame"][0])
    return most if most != NO_FRAME else None


def oom_sentence(ran_out: OutOfMemory, where: str = "") -> str:
    """What was asked for and by whom, what had the memory, and what would have made it fit."""
    asked, frame = size(ran_out["asked_bytes"]), ran_out["frame"]
    request = f"{frame} asked for {asked}" if frame else f"{asked} were asked for"
    text = f"Memory ran out {ran_out['phase']}{where}: {request}, with {size(ran_out['reserved_bytes'])} reserved"
    largest = sorted(ran_out["parts"].items(), key=lambda one: -one[1])[:_MOST]
    unused = ran_out["cached_bytes"] + (ran_out["fragmented_bytes"] or 0)
    text += f" ({listed([f'{name} {size(held)}' for name, held in [*largest, ('cached or fragmented', unused)]])})"
    if ran_out["free_bytes"] is not None:
        text += f" and {size(ran_out['free_bytes'])} free on the device"
        limit = ", so the process has a limit of its own (set_per_process_memory_fraction)"
        text += limit if ran_out["own_limit"] else ""
    if ran_out["outside_bytes"] is not None:
        text += f"; about {size(ran_out['outside_bytes'])} of the GPU are held outside this allocator"
        text += " (CUDA, NCCL, other processes)"
    for part in ran_out["grows"]:
        line = f", most of it by {part['frame']}" if part["frame"] else ""
        text += f"; {part['part']} grew by {size(part['bytes_per_step'])} a step{line}"
    fits = ran_out["would_fit"]
    if not fits:
        return f"{text}. No single change frees the {size(ran_out['lacks_bytes'])} that lacked"
    changes = [f"{one['change']} ({'up to ' if one['at_most'] else ''}{size(one['saves_bytes'])} less)" for one in fits]
    text += f". It {'could' if any(one['at_most'] for one in fits) else 'would'} fit with {listed(changes, 'or')}"
    if ran_out["to_come_bytes"]:
        text += (
            f". No optimizer has stepped yet: gradients and two states for each weight (Adam) take "
            f"{size(ran_out['to_come_bytes'])} more, if they have the weights' type"
        )
    return text

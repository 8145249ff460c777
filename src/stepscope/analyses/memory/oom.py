"""Why memory ran out: what was asked for, what was left, what grew, and what would have made it fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from stepscope.analyses.memory.changes import RANKS
from stepscope.analyses.memory.ledger import Ledger
from stepscope.analyses.memory.room import room
from stepscope.analyses.memory.rules import PARTS
from stepscope.intervals.arrays import NONE
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


class Growth(TypedDict):
    """A part that was larger at every step of the optimizer than at the one before."""

    part: str
    bytes_per_step: int


class Fit(TypedDict):
    """A change to the program, and what it would save."""

    change: str
    saves_bytes: int
    at_most: bool


class OutOfMemory(TypedDict):
    """Of the moment at which memory ran out."""

    asked_bytes: int
    free_bytes: int | None
    reserved_bytes: int
    allocated_bytes: int
    cached_bytes: int
    fragmented_bytes: int | None
    own_limit: bool
    lacks_bytes: int
    grows: list[Growth]
    would_fit: list[Fit]


def out_of_memory(ledger: Ledger, dp: int) -> OutOfMemory | None:
    """The first time that memory ran out; None where it did not. `dp` is the ranks to shard over."""
    history = ledger.history
    if not len(history.oom):
        return None
    event = int(history.oom[0])
    asked, free = int(history.size[event]), int(history.free_bytes[event])
    left = free if free != NONE else None
    space = room(history, event)
    idle = space.cached + (space.fragmentation or 0)
    at = {name: int(ledger.part_over_time(name)[event + 1]) for name in PARTS}
    # With enough free on the device it was the process's own limit that was reached, which is not recorded.
    limited = left is not None and left >= asked
    lacks = asked if limited else asked - (left or 0)
    fits = [one for one in _changes(at, idle, dp) if one["saves_bytes"] >= lacks]
    return {
        "asked_bytes": asked,
        "free_bytes": left,
        "reserved_bytes": int(history.reserved[event + 1]),
        "allocated_bytes": int(history.allocated[event + 1]),
        "cached_bytes": space.cached,
        "fragmented_bytes": space.fragmentation,
        "own_limit": limited,
        "lacks_bytes": lacks,
        "grows": _growing(ledger, event),
        "would_fit": fits[:_MOST],
    }


def oom_summary(of_ranks: Sequence[Ledger], dp: int) -> dict[str, Any]:
    """The same of all devices that ran out, as rows: figures, parts that grew, changes that would fit."""
    tables: dict[str, list[dict[str, object]]] = {"out_of_memory": [], "grows": [], "would_fit": []}
    for ledger in of_ranks:
        if (ran_out := out_of_memory(ledger, dp)) is None:
            continue
        who = {"rank": ledger.history.rank, "device": ledger.history.device}
        tables["out_of_memory"].append({**who, **{k: v for k, v in ran_out.items() if k not in tables}})
        tables["grows"] += [{**who, **growth} for growth in ran_out["grows"]]
        tables["would_fit"] += [{**who, **fit} for fit in ran_out["would_fit"]]
    return {name: rows for name, rows in tables.items() if rows}


def _changes(at: dict[str, int], idle: int, dp: int) -> list[Fit]:
    """From what changes the program least to what changes it most; arithmetic on the parts at that moment."""
    ranks = dp if dp > 1 else RANKS
    kept = 1 - 1 / ranks
    tokens = at["activations"] + at["temporary"]
    states, gradients, weights = at["optimizer states"], at["gradients"], at["weights"]
    listing = (
        ("expandable segments", idle, True),
        ("half the micro-batch", tokens // 2, True),
        ("recomputation", at["activations"], True),
        (f"ZeRO 1 over {ranks} ranks", int(states * kept), False),
        (f"ZeRO 2 over {ranks} ranks", int((states + gradients) * kept), False),
        (f"ZeRO 3 over {ranks} ranks", int((states + gradients + weights) * kept), False),
    )
    return [{"change": name, "saves_bytes": saves, "at_most": bound} for name, saves, bound in listing if saves > 0]


def _growing(ledger: Ledger, event: int) -> list[Growth]:
    """Parts that are larger at every step of the optimizer than at the one before: by how much a step."""
    steps = ledger.decided.steps[ledger.decided.steps <= event]
    if len(steps) < _FEWEST_STEPS.count:
        return []
    growing: list[Growth] = []
    for name in PARTS:
        held = ledger.part_over_time(name)[np.minimum(steps, event)]
        more = np.diff(held)
        if (more > 0).all() and int(held[-1] - held[0]) >= _GROWTH.share * int(ledger.history.reserved[event + 1]):
            growing.append({"part": name, "bytes_per_step": int(np.median(more))})
    return growing


def oom_sentence(ran_out: OutOfMemory) -> str:
    """`memory ran out when 1000 MiB more were asked for with 400 MiB free (…); it would fit with …`."""
    text = f"memory ran out when {size(ran_out['asked_bytes'])} more were asked for"
    if ran_out["free_bytes"] is not None:
        text += f" and {size(ran_out['free_bytes'])} were free on the device"
        text += ", so it was a limit of the process (set_per_process_memory_fraction)" if ran_out["own_limit"] else ""
    unused = ran_out["cached_bytes"] + (ran_out["fragmented_bytes"] or 0)
    text += f", with {size(ran_out['reserved_bytes'])} reserved, {size(unused)} of it cached or fragmented"
    for part in ran_out["grows"]:
        text += f"; {part['part']} grew by {size(part['bytes_per_step'])} a step"
    changes = [
        f"{one['change']} ({'up to ' if one['at_most'] else ''}{size(one['saves_bytes'])} less)"
        for one in ran_out["would_fit"]
    ]
    if changes:
        *others, last = changes
        return text + "; it would fit with " + (f"{', '.join(others)} or {last}" if others else last)
    return text + f"; no single change frees the {size(ran_out['lacks_bytes'])} that lacked"

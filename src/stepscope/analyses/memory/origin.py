"""Who allocated: for each event of the allocator, the traits of its stack and the frame of the user's code.

A snapshot has stacks. Kineto's samples have none, but the host ops and Python functions that were open on the same
thread are one. Where nothing was recorded, nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analyses.memory.rules import MULTIPLIES, TRAITS, WRAPPERS, Trait
from stepscope.derive.memory.history import History
from stepscope.derive.pytorch.frames import is_user, relative
from stepscope.intervals.arrays import I64, NONE, Mask, take
from stepscope.model.nesting import nearest, nest
from stepscope.model.profile import Profile

#: What stands for a frame where there is none of Python.
NO_FRAME = "(no Python frame: autograd)"
NOT_RECORDED = "(not recorded)"
_EMPTY_CACHE = r"empty_?[cC]ache"


@dataclass(frozen=True)
class Origins:
    """Stacks of one rank: what each says. A stack is a chain of a snapshot, or a host record of Kineto."""

    traits: tuple[Mask, ...]  # by trait of `rules.TRAITS`
    python: Mask  # it has a Python frame
    multiplies: Mask
    empties: Mask  # `empty_cache`
    frame: pl.Series  # the innermost frame of the user's code, else the innermost one of Python's
    of_event: I64 | None  # the stack of each event; None where blocks carry their own (`Blocks.chain`)

    def has(self, trait: int, stacks: I64) -> Mask:
        return take(self.traits[trait], stacks, False)

    def named(self, stacks: I64) -> pl.Series:
        """The frame of each stack; what has none was allocated without Python."""
        return _texts(self.frame, stacks, NO_FRAME)

    @property
    def recorded(self) -> bool:
        return len(self.python) > 0


def origins(profile: Profile, history: History) -> Origins:
    """What is known of the stacks of a device's events."""
    if profile.has("stacks") and (frames := dict(profile.by_rank("stacks"))[history.rank]).height:
        return _of_stacks(profile, frames)
    if history.time is not None and (history.tid != NONE).any() and profile.has("host"):
        return _of_host(profile, history)
    none = np.zeros(0, dtype=bool)
    return Origins((none,) * len(TRAITS), none, none, none, pl.Series("frame", [], dtype=pl.String), None)


def _of_stacks(profile: Profile, frames: pl.DataFrame) -> Origins:
    names = profile.names
    file = relative(names.gather(frames["file"].fill_null(0)))
    has_file, line = frames["file"].is_not_null(), frames["line"].cast(pl.String).fill_null("0")
    symbol = names.gather(frames["name"])
    python = (has_file & file.str.ends_with(".py")).to_numpy() | (has_file & file.str.starts_with("<")).to_numpy()
    text = pl.select(
        pl.when(pl.Series(python)).then(pl.concat_str(file, pl.lit("("), line, pl.lit("): "), symbol)).otherwise(symbol)
    ).to_series()
    chain = frames["chain"].to_numpy()
    stacks = int(chain.max()) + 1
    ids, at = np.unique(text.to_numpy(), return_inverse=True)
    distinct = pl.Series(ids, dtype=pl.String)

    def anywhere(rows: Mask) -> Mask:
        matches = np.zeros(stacks, dtype=bool)
        matches[chain[rows]] = True
        return matches

    def matching(pattern: str) -> Mask:
        return anywhere(distinct.str.contains(pattern).to_numpy()[at.reshape(-1)])

    frame = _texts(text, _innermost(chain, python & is_user(text), python, stacks), NO_FRAME)
    asker = _innermost(chain, python & ~text.str.contains(WRAPPERS).to_numpy(), python, stacks)

    def traited(trait: Trait) -> Mask:
        matches = matching(trait.pattern)
        if trait.innermost:
            matches |= _texts(text, asker, "").str.contains(trait.innermost).to_numpy()
        return matches

    traits = tuple(map(traited, TRAITS))
    return Origins(traits, anywhere(python), matching(MULTIPLIES), matching(_EMPTY_CACHE), frame, None)


def _innermost(chain: I64, first: Mask, second: Mask, stacks: int) -> I64:
    """Of each stack the row of its first frame of the one kind, else of the other; NONE where it has neither.

    Frames are in order, innermost first.
    """
    row = np.full(stacks, NONE, dtype=np.int64)
    for kind in (second, first):
        rows = np.flatnonzero(kind)[::-1]
        row[chain[rows]] = rows
    return row


def _texts(text: pl.Series, rows: I64, otherwise: str) -> pl.Series:
    of_rows = text.gather(np.maximum(rows, 0)) if len(text) else pl.Series([None] * len(rows), dtype=pl.String)
    there = pl.Series(rows != NONE)
    return pl.select(pl.when(there).then(of_rows).otherwise(pl.lit(otherwise)).alias("frame")).to_series()


def _of_host(profile: Profile, history: History) -> Origins:
    """Records of the host as a forest: a record's stack is itself and what encloses it on its thread."""
    times = ["tid", "name", "start_ns", "end_ns"]
    host = dict(profile.by_rank("host"))[history.rank].select(*times, python=pl.col("kind") == "python")
    marks = dict(profile.by_rank("ranges"))[history.rank]
    marks = marks.filter(pl.col("kind") == "pushpop").select(*times, python=pl.lit(False))
    records = pl.concat([host, marks])
    tid, start, end = (records[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
    forest = nest(tid, start, end)
    names = profile.names
    ids, at = np.unique(records["name"].to_numpy(), return_inverse=True)
    distinct, at = names.gather(ids), at.reshape(-1)
    python = records["python"].to_numpy()
    user = python & is_user(distinct)[at]
    assert history.time is not None
    of_event = forest.enclosing(history.tid, history.time)

    def matching(pattern: str) -> Mask:
        inside: Mask = nearest(distinct.str.contains(pattern).to_numpy()[at], forest.parent) != NONE
        return inside

    framed = nearest(python, forest.parent)
    row = nearest(user, forest.parent)
    row = np.where(row == NONE, framed, row)
    row = np.where(row == NONE, np.arange(len(row)), row)
    asker = nearest(python & ~distinct.str.contains(WRAPPERS).to_numpy()[at], forest.parent)

    def traited(trait: Trait) -> Mask:
        matches = matching(trait.pattern)
        if trait.innermost:
            matches |= take(distinct.str.contains(trait.innermost).to_numpy()[at], asker, False)
        return matches

    traits = tuple(map(traited, TRAITS))
    frame = _texts(distinct.gather(at), row, NO_FRAME)
    return Origins(traits, framed != NONE, matching(MULTIPLIES), matching(_EMPTY_CACHE), frame, of_event)

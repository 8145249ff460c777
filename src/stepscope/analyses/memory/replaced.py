"""States that an optimizer makes anew: from the moment that the new one is there, the old one is only in the way.

m and v of a parameter are there twice for some lines of the optimizer's step. What the parameters hold as states is one
of each; the other is temporary until it is released.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import polars as pl

from stepscope.analyses.memory import reasons
from stepscope.analyses.memory.parts import Decided
from stepscope.derive.memory.history import Blocks, History
from stepscope.intervals.arrays import I64


def without_overlap(history: History, decided: Decided) -> tuple[History, Decided]:
    """With each state that is replaced cut in two where its successor of the same size comes."""
    blocks = history.blocks
    old, cut = _succeeded(blocks, decided)
    if not len(old):
        return history, decided
    rows = np.r_[np.arange(len(blocks.begin)), old]
    begin, end = blocks.begin[rows], blocks.end[rows]
    begin[len(blocks.begin) :] = cut
    end[old] = cut
    order = np.argsort(begin, kind="stable")
    reason = decided.reason[rows]
    reason[len(blocks.begin) :] = reasons.BESIDE_NEW
    split = replace(blocks, **{f.name: getattr(blocks, f.name)[rows][order] for f in fields(Blocks)})
    split = replace(split, begin=begin[order], end=end[order])
    reason, rows = reason[order], rows[order]
    by_block = {name: getattr(decided, name)[rows] for name in ("stack", "backward", "optimizing")}
    return (
        replace(history, blocks=split),
        replace(decided, reason=reason, part=reasons.PART_OF[reason], **by_block),
    )


def _succeeded(blocks: Blocks, decided: Decided) -> tuple[I64, I64]:
    """States that a step of the optimizer releases after it made others of their size, and the moments of those: the
    first to go is succeeded by the first to come."""
    states = np.flatnonzero(np.isin(reasons.PART_OF[decided.reason], reasons.PART_OF[reasons.STATE]))
    step = pl.Series(np.searchsorted(decided.steps, blocks.begin[states], side="right"))
    table = pl.DataFrame(
        {
            "row": states,
            "size": blocks.requested[states],
            "begin": blocks.begin[states],
            "end": blocks.end[states],
            "came": step,
            "went": np.searchsorted(decided.steps, blocks.end[states], side="right"),
        }
    )
    nth = pl.int_range(pl.len()).over("size", "step").alias("nth")
    new = table.sort("begin").select("size", "begin", step="came").filter(pl.col("step") > 0).with_columns(nth)
    old = table.sort("end").filter(pl.col("came") < pl.col("went")).select("row", "size", "end", step="went")
    pairs = old.with_columns(nth).join(new, on=["size", "step", "nth"]).filter(pl.col("begin") < pl.col("end"))
    return pairs["row"].to_numpy(), pairs["begin"].to_numpy()

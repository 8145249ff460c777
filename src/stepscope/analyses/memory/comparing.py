"""Two ledgers beside each other: which part grew, and which line of the program holds more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import polars as pl

from stepscope.analyses.memory.ledger import CACHED, FRAGMENTATION, OUTSIDE, Ledger
from stepscope.analyses.memory.rules import PARTS
from stepscope.model.statement import several
from stepscope.model.units import size


class Beside(TypedDict):
    to_bytes: Annotated[int | None, "the same at the peak of --to; null without it"]
    change_bytes: Annotated[int, "to_bytes less bytes"]


_WHO = ("rank", "device")
#: A line of a file: `train.py(12): step` without the 12.
_LINE = r"\(\d+\)(: [^(]*)$"
_ORDER = (*PARTS, CACHED, FRAGMENTATION, OUTSIDE)
#: Parts, and lines, that a sentence names.
_MOST = 3


def beside(table: pl.DataFrame, other: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Rows of one side with the bytes of the other; what only one side has stands with nothing on the other."""
    who = _who(table, other)
    if "frame" in keys:
        other = _same_lines(table, other, who)
    right = other.select(*who, *keys, pl.col("bytes").alias("to_bytes"))
    both = table.join(right, on=[*who, *keys], how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    recorded = pl.col("part") != OUTSIDE  # what was not recorded is not nothing
    both = both.with_columns(
        pl.when(recorded).then(pl.col(c).fill_null(0)).otherwise(pl.col(c)).alias(c) for c in ("bytes", "to_bytes")
    )
    both = both.with_columns((pl.col("to_bytes") - pl.col("bytes")).alias("change_bytes"))
    if "frame" in keys:
        return both.sort(pl.col("change_bytes").abs(), "part", "frame", descending=[True, False, False])
    return both.sort(*who, pl.col("part").replace_strict(_ORDER, range(len(_ORDER)), return_dtype=pl.Int64))


def _who(table: pl.DataFrame, other: pl.DataFrame) -> list[str]:
    """One device on both sides is the same device, whatever its rank."""
    each = [side.select(_WHO).unique().height for side in (table, other)]
    return list(_WHO) if each != [1, 1] else []


def _same_lines(table: pl.DataFrame, other: pl.DataFrame, who: Sequence[str]) -> pl.DataFrame:
    """The other side with this side's frame where only the line number changed: one line of that function on each."""
    place = pl.col("frame").str.replace(_LINE, "$1").alias("place")
    sides = [side.with_columns(place) for side in (table, other)]
    keys = [*who, "part", "place"]
    own, theirs = (s.filter(pl.len().over(keys) == 1).select(*keys, "frame") for s in sides)
    pairs = theirs.join(own, on=keys, how="inner", nulls_equal=True, suffix="_here").select(
        *who, "part", "frame", "frame_here"
    )
    named = other.join(pairs, on=[*who, "part", "frame"], how="left", nulls_equal=True, maintain_order="left")
    return named.with_columns(pl.coalesce("frame_here", "frame").alias("frame")).drop("frame_here")


def change_sentence(here: Sequence[Ledger], there: Sequence[Ledger], parts: pl.DataFrame, frames: pl.DataFrame) -> str:
    """How the peak changed, by part, and the lines that hold more or less."""
    before, after = (max(side, key=lambda each: each.reserved).reserved for side in (here, there))
    by_part = parts.drop_nulls("change_bytes").group_by("part", maintain_order=True).agg(pl.col("change_bytes").sum())
    moved = by_part.filter(pl.col("change_bytes") != 0).sort(pl.col("change_bytes").abs(), descending=True)
    if before == after and not moved.height:
        return f"The peak is the same: {size(before)} are reserved, and no part changed."
    way = "as much" if before == after else f"{size(abs(after - before))} {'more' if after > before else 'less'}"
    text = f"The peak of --to reserves {way} ({size(before)} to {size(after)})"
    text += f": {', '.join(f'{part} {_signed(change)}' for part, change in moved.head(_MOST).iter_rows())}"
    if moved.height > _MOST:
        text += f", {several(moved.height - _MOST, 'part')} less than that"
    line = frames.filter((pl.col("change_bytes") != 0) & ~pl.col("frame").str.starts_with("("))
    if line.height:
        top = line.row(0, named=True)
        text += f"; of lines, {top['frame']} changed most ({top['part']}, {_signed(top['change_bytes'])})"
    return text + "."


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else '-'}{size(abs(change))}"

"""What a step is: which ranges of a rank mark its steps or chunks, in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.rank.data import RankData

I64 = npt.NDArray[np.int64]

#: DualPipeV's overlapped chunk.
CHUNK = r"forward chunk .* backward chunk"
#: torch.profiler's step.
TORCH_STEP = r"^ProfilerStep#\d+"
#: What torch.autograd.profiler.emit_nvtx calls an op: numbered, but no step.
TORCH_OP = r", (seq|op_id) = \d+"
#: What steps are called, beside DualPipeV's chunks, which are no steps.
STEPS = r"(?i)^(ProfilerStep#|(train(ing)?[ _-]?)?(step|iteration|iter)[ _#:=-]*)\d+"


@dataclass(frozen=True)
class Anchors:
    """Instances of the anchor on one rank, by start."""

    label: list[str]
    start: I64
    end: I64


def anchors_of(data: RankData, pattern: str | None = None) -> Anchors | None:
    """Instances of the given anchor, or of the first default that this rank has; None where it has none."""
    return data.once(_anchors_of, pattern)


def _anchors_of(data: RankData, pattern: str | None) -> Anchors | None:
    table = data.anchor_ranges()
    if table.height == 0:
        return None
    for rule in (pattern,) if pattern is not None else (CHUNK, TORCH_STEP):
        texts = [t for t in table["text"].unique().to_list() if re.search(rule, t)]
        found = table.filter(pl.col("text").is_in(texts))
        if found.height:
            return _instances(found)
    return None if pattern is not None else _numbered(table)


def _instances(found: pl.DataFrame) -> Anchors:
    found = found.sort("start_ns", "end_ns", maintain_order=True)
    return Anchors(found["text"].to_list(), found["start_ns"].to_numpy(), found["end_ns"].to_numpy())


def _numbered(table: pl.DataFrame) -> Anchors | None:
    """Ranges whose texts differ in a running number: the shallowest family; of several, the one with most host time.

    A number runs if it grows by the same amount from each instance to the next: steps do, ids of ops do not.
    """
    numbered = table.with_columns(
        pl.col("text").str.replace_all(r"\d+", "#").alias("family"),
        pl.col("text").str.extract_all(r"\d+").list.last().cast(pl.Int64, strict=False).alias("number"),
    ).filter(pl.col("number").is_not_null() & ~pl.col("text").str.contains(TORCH_OP))
    families = (
        numbered.sort("start_ns")
        .group_by("family", maintain_order=True)
        .agg(
            pl.len().alias("n"),
            pl.col("number").diff().drop_nulls().unique().alias("stride"),
            pl.col("depth").min().alias("depth"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total"),
        )
        .filter((pl.col("n") >= 2) & (pl.col("stride").list.len() == 1) & (pl.col("stride").list.first() > 0))
        .sort(["depth", "total", "family"], descending=[False, True, False])
    )
    if families.height == 0:
        return None
    return _instances(numbered.filter(pl.col("family") == families["family"][0]))

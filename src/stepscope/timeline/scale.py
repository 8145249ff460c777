"""From a rank's own clock to what timeline and pipeline are drawn on: ns since the first op, on the common clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.timeline.messages import Place


def scales(rows: pl.DataFrame, origin: int) -> dict[int, Line]:
    """By rank, from rows with `start_ns` (own) and `common_start_ns`: through its first and its last."""
    lines = {}
    for rank, of_rank in ranked(rows):
        own, common = of_rank["start_ns"], of_rank["common_start_ns"] - origin
        ends = [int(own.to_numpy().argmin()), int(own.to_numpy().argmax())]
        lines[rank] = Line.through(tuple(own[ends]), tuple(common[ends]))
    return lines


def ranked(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Rows of each rank, of a table that is sorted by rank. Slices share memory."""
    ranks = rows["rank"].to_numpy()
    first = np.flatnonzero(np.r_[True, ranks[1:] != ranks[:-1]][: len(ranks)])
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(ranks)], strict=False):
        yield int(ranks[low]), rows[low:high]


def drawn(rows: pl.DataFrame, by_rank: dict[int, Line], *columns: str) -> pl.DataFrame:
    """`rows` with `columns`, own times of their rank, as they are drawn; without ranks that have no scale."""
    placed = rows.filter(pl.col("rank").is_in(list(by_rank)))
    rank = placed["rank"].to_numpy()
    for column in columns:
        time = placed[column].to_numpy().copy()
        for each in np.unique(rank).tolist():
            time[rank == each] = by_rank[each].at(time[rank == each])
        placed = placed.with_columns(pl.Series(column, time))
    return placed


def placed(where: dict[str, Any], by_rank: dict[int, Line]) -> Place | None:
    """A place that a finding names, as it is drawn; None for a rank that is not."""
    scale = by_rank.get(where["rank"])
    if scale is None:
        return None
    start, end = scale.moment(where["start_ns"]), scale.moment(where["end_ns"])
    return Place(rank=where["rank"], stream=where.get("stream"), start=start, end=end)

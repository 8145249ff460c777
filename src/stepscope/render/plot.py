"""A row of bars per rank, in text: how steady the pace was."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from stepscope.render.units import duration

_BARS = "▁▂▃▄▅▆▇█"
_LEAST_WIDTH = 20


def pace(rows: pl.DataFrame, width: int) -> list[str]:
    """Time on the GPU (on the host where there is none) of every instance, by rank, on one scale from 0."""
    timed = rows.with_columns(pl.coalesce("gpu_ns", "cpu_ns").alias("took")).drop_nulls("took")
    if timed.height == 0:
        return []
    most = int(timed["took"].to_numpy().max())
    room = max(_LEAST_WIDTH, width - len("rank 0000  "))
    lines = [f"each bar is one instance, full height {duration(most)}"]
    for (rank,), mine in timed.group_by(["rank"], maintain_order=True):
        took = _squeezed(mine["took"].to_list(), room)
        lines.append(f"rank {rank!s:<5} {''.join(_bar(t, most) for t in took)}")
    if timed.group_by("rank").len()["len"].to_numpy().max() > room:
        lines[0] = f"each bar is the slowest of several instances, full height {duration(most)}"
    return lines


def _bar(took: int, most: int) -> str:
    return _BARS[min(len(_BARS) - 1, took * len(_BARS) // most if most else 0)]


def _squeezed(values: list[int], room: int) -> list[int]:
    """At most `room` values: the largest of each stretch, so that no outlier is lost."""
    if len(values) <= room:
        return values
    edges = [i * len(values) // room for i in range(room + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]

"""A row of bars per rank, in text: how steady the pace was."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from stepscope.model.units import duration

_BARS = "▁▂▃▄▅▆▇█"
_LEAST_WIDTH = 20
_SHOWN = {"period_ns": "the period", "gpu_ns": "the time on the GPU", "cpu_ns": "the time on the host"}


def pace(rows: pl.DataFrame, width: int) -> list[str]:
    """Period of every instance (else its time on the GPU, else on the host), by rank, on one scale from 0."""
    what = next((c for c in ("period_ns", "gpu_ns", "cpu_ns") if rows[c].count()), None)
    if what is None:
        return []
    timed = rows.rename({what: "took"}).drop_nulls("took")
    most = int(timed["took"].to_numpy().max())
    room = max(_LEAST_WIDTH, width - len("rank 0000  "))
    lines = [f"each bar is {_SHOWN[what]} of one instance, full height {duration(most)}"]
    for (rank,), of_rank in timed.group_by(["rank"], maintain_order=True):
        took = _squeezed(of_rank["took"].to_list(), room)
        lines.append(f"rank {rank!s:<5} {''.join(_bar(t, most) for t in took)}")
    if timed.group_by("rank").len()["len"].to_numpy().max() > room:
        lines[0] = f"each bar is {_SHOWN[what]} of the slowest of several instances, full height {duration(most)}"
    return lines


def _bar(took: int, most: int) -> str:
    return _BARS[min(len(_BARS) - 1, took * len(_BARS) // most if most else 0)]


def _squeezed(values: list[int], room: int) -> list[int]:
    """At most `room` values: the largest of each stretch, so that no outlier is lost."""
    if len(values) <= room:
        return values
    edges = [i * len(values) // room for i in range(room + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]

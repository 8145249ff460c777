"""What calls of libraries cost: host time, and the GPU work that was launched in them."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData
from stepscope.derive.rank.libraries import library_calls
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import I64, NONE, take

_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min
_SUMS = ("kernel_ns", "comm_ns", "copy_ns", "ops")


def library_figures(data: RankData, span: Window) -> pl.DataFrame:
    """By library and call, of those that began in the window or launched into it; calls within calls count for both.

    A call within one of the same name counts in `n` only: its time and work are the outer one's already.
    """
    calls = library_calls(data)
    frame, parent = calls.frame, calls.nesting.parent
    start, end = (frame[c].to_numpy() for c in ("start_ns", "end_ns"))
    work = _launched(data, span, parent, calls.enclosing(_threads(data, span.ops), data.launched_at[span.ops]))
    began = np.zeros(frame.height, dtype=bool)
    if span.cpu_start_ns is not None and span.cpu_end_ns is not None:
        began = (start >= span.cpu_start_ns) & (start < span.cpu_end_ns)
    mine = pl.Series(began | (work["ops"] > 0))
    outer = pl.Series(np.where(parent != NONE, parent, 0), dtype=pl.Int64)
    again = (frame["name"] == frame["name"].gather(outer)) & pl.Series(parent != NONE) if frame.height else mine
    table = frame.select("library", range="name").with_columns(
        pl.Series("host_ns", end - start), pl.Series("again", again), *(pl.Series(k, v) for k, v in work.items())
    )
    once = ~pl.col("again")
    return (
        table.filter(mine)
        .group_by("library", "range")
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            *(pl.col(c).filter(once).sum() for c in ("host_ns", "gpu_ns", *_SUMS)),
            pl.col("host_ns").mean().round(0).cast(pl.Int64).alias("mean_ns"),
            pl.col("host_ns").max().alias("max_ns"),
        )
        .sort(["host_ns", "library", "range"], descending=[True, False, False])
    )


def _threads(data: RankData, ops: I64) -> I64:
    return take(data.calls["tid"].cast(pl.Int64).to_numpy(), data.launch[ops], NONE)


def _launched(data: RankData, span: Window, parent: I64, within: I64) -> dict[str, I64]:
    """Per call, the work launched in it and in the calls inside it."""
    n = len(parent)
    sums = {name: np.zeros(n, np.int64) for name in _SUMS}
    first, last = np.full(n, _LATE, np.int64), np.full(n, _EARLY, np.int64)
    at, ops = within, span.ops
    while len(at):
        inside = at != NONE
        at, ops = at[inside], ops[inside]
        length = data.end[ops] - data.start[ops]
        for name, role in zip(_SUMS, (COMPUTE, COMM, COPY), strict=False):
            mine = data.role[ops] == role
            np.add.at(sums[name], at[mine], length[mine])
        np.add.at(sums["ops"], at, 1)
        np.minimum.at(first, at, data.start[ops])
        np.maximum.at(last, at, data.end[ops])
        at = parent[at]
    return {"gpu_ns": np.where(sums["ops"] > 0, last - first, 0), **sums}

"""How busy each process kept each device: gaps, and use by equal pieces of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64
from stepscope.nsys.reports.statistics import round1
from stepscope.nsys.reports.view import View, ints

#: What the profiler did that kept the program from launching, under the names that nsys 2023.4 knows.
_OVERHEAD = ("CUDA profiling data flush overhead", "CUDA profiling stop overhead", "CUDA profiling overhead")

_GAPS = {"duration": pl.Int64, "start_ns": pl.Int64, "pid": pl.Int64, "device": pl.Int32, "context": pl.Int32}


def gaps(view: View, longest: int) -> pl.DataFrame:
    """Idle times above a threshold, longest first: where the i-th end lies before the start of the next."""
    idle_spans = []
    for pid, device, ops in _busy(view):
        start, end = (np.sort(x, kind="stable") for x in ints(ops, "start_ns", "end_ns"))
        idle = start[1:] - end[:-1]
        at = np.flatnonzero((idle > longest) & (idle > 0))
        context = ops.sort("end_ns", maintain_order=True)["context"].to_numpy()
        idle_spans += [(int(idle[i]), int(end[i]), pid, device, int(context[i])) for i in at]
    frame = pl.DataFrame(idle_spans, schema=_GAPS, orient="row").sort("duration", "start_ns", descending=[True, False])
    return frame.with_row_index("row", offset=1)


def utilization(view: View, chunks: int, threshold: int) -> pl.DataFrame:
    """Pieces of time used below the threshold, neighbours joined, least used first."""
    low_chunks = []
    for pid, device, ops in _busy(view):
        start, end = ints(ops, "start_ns", "end_ns")
        low, high = int(start.min()), int(end.max())
        size = -(-(high - low) // chunks)
        edges = low + size * np.arange(chunks + 1, dtype=np.int64)
        edges = np.minimum(edges[: int(np.searchsorted(edges, high)) + 1], high)
        length = np.diff(edges)
        used = np.diff(_elapsed(start, end, edges)) / length * 100
        context = int(ops["context"][0])
        for at in _runs(np.flatnonzero(used < threshold)):
            share = float(np.sum(length[at] * used[at]) / np.sum(length[at]))
            first, last = int(edges[at[0]]), int(edges[at[-1] + 1])
            low_chunks.append((share, last - first, first, pid, device, context))
    frame = pl.DataFrame(low_chunks, schema={"used": pl.Float64, **_GAPS}, orient="row")
    frame = frame.with_columns(round1(pl.col("used"))).sort("used", "duration", maintain_order=True)
    return frame.with_row_index("row", offset=1)


def _elapsed(start: I64, end: I64, at: I64) -> I64:
    """Operating time of all operations together up to each moment; concurrent ones add up."""
    starts, ends = np.sort(start), np.sort(end)
    begun, done = np.searchsorted(starts, at), np.searchsorted(ends, at)
    sum_starts, sum_ends = (np.concatenate([[0], np.cumsum(x - x.min())]) for x in (starts, ends))
    total: I64 = (begun * (at - starts.min()) - sum_starts[begun]) - (done * (at - ends.min()) - sum_ends[done])
    return total


def _runs(rows: I64) -> list[I64]:
    """Rows cut where they are not consecutive."""
    return [run for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(run)]


def _busy(view: View) -> Iterator[tuple[int, int, pl.DataFrame]]:
    """(pid, device, operations and what the profiler itself did meanwhile) of each process and device."""
    view.need("ops")
    ops = view.ops(detail=True).filter(pl.col("start_ns") > 0).select("rank", "device", "start_ns", "end_ns", "context")
    overhead = _overhead(view)
    pids = dict(view.profile.ranks.select("rank", "pid").iter_rows())
    for (rank, device), mine in sorted(ops.group_by("rank", "device", maintain_order=True), key=lambda kv: str(kv[0])):
        low, high = mine["start_ns"].min(), mine["end_ns"].max()
        inside = overhead.filter(
            (pl.col("rank") == rank) & (pl.col("start_ns") > low) & (pl.col("end_ns") < high)
        ).select("start_ns", "end_ns")
        mine = pl.concat([mine, inside], how="diagonal").with_columns(pl.col("context").forward_fill())
        yield pids[rank], int(str(device)), mine.with_columns(pl.col("context").fill_null(0))


def _overhead(view: View) -> pl.DataFrame:
    if not view.profile.has("records"):
        return pl.DataFrame(schema={"rank": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64})
    records = view.profile.table("records").filter(pl.col("kind") == "overhead")
    records = records.filter(view.names.is_in(_OVERHEAD).gather(records["name"])) if records.height else records
    return records if view.part.whole else records.filter(view.part.mask(records, per_thread=True))

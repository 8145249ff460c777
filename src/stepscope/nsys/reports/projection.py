"""Reports that carry NVTX ranges over to the GPU: by the calls made inside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE
from stepscope.nsys.reports.attribution import Attribution
from stepscope.nsys.reports.nvtx import STYLES
from stepscope.nsys.reports.spec import Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import five, moments, round1
from stepscope.nsys.reports.tree import Tree, tree
from stepscope.nsys.reports.view import View, ints

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Projection:
    """Per range of an attribution: from the first start to the last end of what was launched inside; `n` launches."""

    start: I64
    end: I64
    n: I64
    tree: Tree


def project(view: View) -> Projection:
    attribution = view.attribution
    ops = view.ops()
    call, op_start, op_end = ints(ops.with_columns(pl.col("call").fill_null(NONE)), "call", "start_ns", "end_ns")
    n = len(attribution.nest.start)
    start, end = np.full(n, _NEVER), np.full(n, -_NEVER)
    if attribution.proper:
        innermost = attribution.of_ops(call)
        inside = np.flatnonzero(innermost != NONE)
        row = innermost[inside]
        np.minimum.at(start, row, op_start[inside])
        np.maximum.at(end, row, op_end[inside])
        count = np.bincount(attribution.innermost[attribution.innermost != NONE], minlength=n).astype(np.int64)
        _upwards(attribution, start, end, count)
        return Projection(start, end, count, Tree(attribution.nest.parent, attribution.depth))
    count = np.zeros(n, dtype=np.int64)
    launched = call != NONE
    first, last = _per_call(call[launched], op_start[launched], op_end[launched], attribution.calls, view.calls.height)
    for at, row in attribution.climb(attribution.innermost, attribution.call_end):
        _add(start, end, count, row, first[at], last[at], np.ones(len(at), np.int64))
    return Projection(start, end, count, tree(attribution.nest))


def _per_call(call: I64, start: I64, end: I64, calls: I64, n: int) -> tuple[I64, I64]:
    """First start and last end of what each of `calls` launched; a graph launch has many operations."""
    first, last = np.full(n, _NEVER), np.full(n, -_NEVER)
    np.minimum.at(first, call, start)
    np.maximum.at(last, call, end)
    return first[calls], last[calls]


def _add(start: I64, end: I64, count: I64, row: I64, first: I64, last: I64, n: I64) -> None:
    np.minimum.at(start, row, first)
    np.maximum.at(end, row, last)
    np.add.at(count, row, n)


def _upwards(attribution: Attribution, start: I64, end: I64, count: I64) -> None:
    """Children before parents: level by level, deepest first."""
    depth = attribution.depth
    order = np.argsort(-depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[order])) + 1
    for rows in np.split(order, bounds):
        rows = rows[(attribution.nest.parent[rows] != NONE) & (count[rows] > 0)]
        _add(start, end, count, attribution.nest.parent[rows], start[rows], end[rows], count[rows])


def _frame(view: View, made: Projection) -> pl.DataFrame:
    """All ranges with their projection."""
    return view.attribution.ranges.with_columns(
        pl.Series("proj_start", made.start),
        (pl.Series("proj", made.end) - pl.Series(made.start)).alias("proj"),
        pl.Series("ops", made.n),
        pl.Series("level", made.tree.level),
        pl.Series("n_children", made.tree.children(made.n > 0)),
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
        pl.col("kind").cast(pl.String).replace_strict(STYLES, return_dtype=pl.String, default=None).alias("style"),
    )


def _sum(view: View, args: Args) -> pl.DataFrame:
    view.need("ops", "calls", "ranges")
    frame = _frame(view, project(view)).filter(pl.col("ops") > 0)
    sums = frame.group_by("label", "style").agg(
        *moments("proj"), *(pl.col(c).sum() for c in ("duration", "ops", "level", "n_children"))
    )
    sums = Rows(sums, {"label": view.labels}).decoded()
    sums = sums.sort("total", "label", "style", descending=[True, False, False])
    per_range = [round1(pl.col(c) / pl.col("n")).alias(f"{c}_avg") for c in ("ops", "level", "n_children")]
    return sums.select("label", "style", "total", "duration", "n", *five(), "ops", *per_range)


def _trace(view: View, args: Args) -> pl.DataFrame:
    view.need("ops", "calls", "ranges")
    made = project(view)
    number = view.range_numbers(view.attribution.ranges)
    frame = _frame(view, made).with_columns(
        pl.Series("number", number),
        made.tree.parent_numbers(number).alias("parent_number"),
        pl.Series("stack", made.tree.stacks(number), dtype=pl.String),
    )
    rows = Rows(frame.filter(pl.col("ops") > 0).sort("number"), {"label": view.labels}).decoded()
    named = rows.select(
        "label",
        "proj_start",
        "proj",
        "start_ns",
        "duration",
        "style",
        view.pid(pl.col("rank")).alias("pid"),
        pl.col("tid").cast(pl.Int64),
        "ops",
        "level",
        "n_children",
        "number",
        "parent_number",
        "stack",
    )
    return pl.concat([_outside(view, named.schema), named])


def _outside(view: View, schema: pl.Schema) -> pl.DataFrame:
    """One row without a name for all that was launched outside of any range."""
    ops = view.ops().filter(pl.col("call").is_not_null())
    ops = ops.filter(pl.Series(view.attribution.of_ops(ops["call"].to_numpy()) == NONE))
    if ops.height == 0:
        return pl.DataFrame(schema=schema)
    # nsys gives one process and thread of all there are: those of the last to end.
    last = ops.sort("end_ns", maintain_order=True).row(-1, named=True)
    start = ops["start_ns"].min()
    row = {
        "proj_start": start,
        "proj": last["end_ns"] - start,
        "pid": view.profile.ranks.filter(pl.col("rank") == last["rank"])["pid"][0],
        "tid": view.calls["tid"][last["call"]],
        "ops": ops["correlation"].n_unique(),
        "n_children": 0,
    }
    return pl.DataFrame({name: pl.Series([row.get(name)], dtype=dtype) for name, dtype in schema.items()})


_DOC = (
    "An operation belongs to the ranges of the launching thread that were open during the whole launching call; a range"
    " reaches from the first start to the last end of its operations, gaps included. Ranges that end on another thread"
    " are left out."
)

REPORTS = (
    Report(
        "nvtx_gpu_proj_sum",
        "NVTX GPU Projection Summary",
        columns(
            *("Range", "Style", "Total Proj Time:dur_ns", "Total Range Time:dur_ns", "Range Instances"),
            *(f"Proj {what}:dur_ns" for what in ("Avg", "Med", "Min", "Max", "StdDev")),
            *("Total GPU Ops", "Avg GPU Ops", "Avg Range Lvl", "Avg Num Child"),
        ),
        _sum,
        f"NVTX ranges as they were executed on the GPU, by text. {_DOC}",
    ),
    Report(
        "nvtx_gpu_proj_trace",
        "NVTX GPU Projection Trace",
        columns(
            *("Name", "Projected Start:ts_ns", "Projected Duration:dur_ns", "Orig Start:ts_ns", "Orig Duration:dur_ns"),
            *("Style", "PID", "TID", "NumGPUOps", "Lvl", "NumChild", "RangeId", "ParentId", "RangeStack"),
        ),
        _trace,
        f"Every NVTX range that launched something, as it was executed on the GPU. {_DOC}",
    ),
)

"""Which kernels each NVTX range launched."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.model.schema import RANGE_KIND
from stepscope.nsysreports.attribution import NONE
from stepscope.nsysreports.kernels import kernels
from stepscope.nsysreports.nvtx import STYLES
from stepscope.nsysreports.spec import BASE, MANGLED, Args, Report, Rows, columns
from stepscope.nsysreports.statistics import five, moments
from stepscope.nsysreports.view import View


def _sum(view: View, args: Args) -> pl.DataFrame:
    """Every kernel once per range that contains its launch, by (process, thread, range, kernel)."""
    view.need("ops", "calls", "ranges")
    named = kernels(view, args)
    found = view.attribution
    groups = found.ranges.select("rank", "tid", "label", "kind")
    keys = groups.unique(maintain_order=True).with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("key"))
    key_of = groups.join(keys, on=groups.columns, how="left", maintain_order="left")["key"].to_numpy()
    ops = named.frame.select("kernel", "duration", "call", "rank")
    innermost = found.of_ops(ops["call"])
    call_end = np.zeros(ops.height, dtype=np.int64)
    if view.calls.height and not found.proper:
        call_end = view.calls["end_ns"].gather(ops["call"].fill_null(0)).to_numpy()
    inside = [
        pl.DataFrame({"key": key_of[row], "range": row.astype(np.uint32), "op": at.astype(np.uint32)})
        for at, row in found.climb(innermost, call_end)
    ]
    frames = []
    if inside:
        pairs = pl.concat(inside)
        pairs = pairs.with_columns(ops["kernel"].gather(pairs["op"]), ops["duration"].gather(pairs["op"]))
        summed = pairs.group_by("key", "kernel").agg(
            pl.col("range").n_unique().alias("ranges"), pl.col("op").n_unique().alias("kernels"), *moments("duration")
        )
        frames.append(summed.join(keys, on="key").drop("key"))
    frames.append(_outside(view, ops.filter(pl.Series(innermost == NONE))))
    both = Rows(pl.concat(frames, how="diagonal_relaxed"), {**named.texts, "label": view.labels}).decoded()
    both = both.with_columns(view.pid(pl.col("rank")).alias("pid"))
    style = pl.col("kind").cast(pl.String).replace_strict(STYLES, return_dtype=pl.String, default=None)
    order = ["label", "pid", "tid", "total", "kind", "kernel"]
    return both.sort(order, descending=[False, False, False, True, False, False], nulls_last=False).select(
        "label", style.alias("style"), "pid", "tid", "ranges", "kernels", "total", *five(), "kernel"
    )


def _outside(view: View, ops: pl.DataFrame) -> pl.DataFrame:
    """Kernels launched in no range; without a launching call, in no process that nsys could tell either."""
    launched = ops["call"].is_not_null()
    tid = view.calls["tid"].gather(ops["call"].fill_null(0)).set(~launched, None) if view.calls.height else None
    ops = ops.with_columns(
        pl.Series("tid", tid if tid is not None else [None] * ops.height, dtype=pl.Int32),
        pl.when(launched).then("rank").alias("rank"),
    )
    summed = ops.group_by("rank", "tid", "kernel").agg(pl.len().alias("kernels"), *moments("duration"))
    return summed.with_columns(
        pl.lit(0, dtype=pl.UInt32).alias("ranges"),
        pl.lit(None, dtype=pl.UInt32).alias("label"),
        pl.lit(None, dtype=RANGE_KIND).alias("kind"),
    )


REPORTS = (
    Report(
        "nvtx_kern_sum",
        "NVTX Range Kernel Summary",
        columns(
            *("NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time:dur_ns", "Avg:dur_ns"),
            *("Med:dur_ns", "Min:dur_ns", "Max:dur_ns", "StdDev:dur_ns", "Kernel Name"),
        ),
        _sum,
        "Kernels by the NVTX ranges that were open on the launching thread during the whole launching call. A kernel"
        " counts in every range of the stack, not only in the deepest. Kernels launched in no range come first.",
        (BASE, MANGLED),
    ),
)

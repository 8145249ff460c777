"""Which kernels each NVTX range launched."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE
from stepscope.model.columns import RANGE_KIND
from stepscope.nsys.reports.attribution import Attribution
from stepscope.nsys.reports.kernels import kernels
from stepscope.nsys.reports.nvtx import STYLES
from stepscope.nsys.reports.spec import BASE, MANGLED, Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import five, moments
from stepscope.nsys.reports.view import View, ints


def _sum(view: View, args: Args) -> pl.DataFrame:
    """Every kernel once per range that contains its launch, by (process, thread, range, kernel)."""
    view.need("ops", "calls", "ranges")
    named = kernels(view, args)
    found = view.attribution
    groups = found.ranges.select("rank", "tid", "label", "kind")
    keys = groups.unique(maintain_order=True).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("key"))
    key_of = groups.join(keys, on=groups.columns, how="left", maintain_order="left")["key"].to_numpy()
    ops = named.frame.select("kernel", "duration", "call", "rank")
    innermost = found.of_ops(ops["call"])
    inside = _inside(view, ops, innermost, key_of)
    inside = inside.join(keys, on="key", how="left").drop("key")
    both = pl.concat([inside, _outside(view, ops.filter(pl.Series(innermost == NONE)))], how="diagonal_relaxed")
    both = Rows(both, {**named.texts, "label": view.labels}).decoded()
    both = both.with_columns(view.pid(pl.col("rank")).alias("pid"))
    style = pl.col("kind").cast(pl.String).replace_strict(STYLES, return_dtype=pl.String, default=None)
    order = ["label", "pid", "tid", "total", "kind", "kernel"]
    return both.sort(order, descending=[False, False, False, True, False, False], nulls_last=False).select(
        "label", style.alias("style"), "pid", "tid", "ranges", "kernels", "total", *five(), "kernel"
    )


def _inside(view: View, ops: pl.DataFrame, innermost: I64, key_of: I64) -> pl.DataFrame:
    """Kernels by (group of ranges, kernel): both in one number, which halves the cost of grouping millions of pairs."""
    found = view.attribution
    kernel, duration = ints(ops, "kernel", "duration")
    names = int(kernel.max(initial=0)) + 1
    until = np.zeros(ops.height, dtype=np.int64)
    if not found.proper:
        until = view.calls["end_ns"].gather(ops["call"].fill_null(0)).to_numpy()
    levels = found.climb(innermost, until)
    pairs = pl.DataFrame(
        {
            "code": _joined([key_of[row] * names + kernel[at] for at, row in levels]),
            "duration": _joined([duration[at] for at, _ in levels]),
        }
    )
    summed = pairs.group_by("code").agg(moments("duration"))
    counted = _count_ranges(found, levels, kernel, key_of, names)
    summed = summed.join(counted, on="code", how="left")
    if _same_name_nested(found, key_of):  # then a kernel is in a group more than once
        ops_of = pairs.with_columns(pl.Series("op", _joined([at for at, _ in levels])))
        once = ops_of.group_by("code").agg(pl.col("op").n_unique().alias("kernels"))
        summed = summed.join(once, on="code", how="left")
    else:
        summed = summed.with_columns(pl.col("n").alias("kernels"))
    return summed.with_columns(
        (pl.col("code") // names).alias("key"), (pl.col("code") % names).cast(pl.UInt32).alias("kernel")
    ).drop("code")


def _count_ranges(
    found: Attribution, levels: list[tuple[I64, I64]], kernel: I64, key_of: I64, names: int
) -> pl.DataFrame:
    """`ranges`: how many different ranges a group's kernels were launched in."""
    if found.proper and levels:
        # Each (range, kernel) once, innermost ranges first; the same kernels were launched in the ranges above.
        at, row = levels[0]
        pairs = [pl.Series(row * names + kernel[at]).unique()]
        while True:
            code = pairs[-1].to_numpy()
            up = found.nest.parent[code // names]
            inside = up != NONE
            if not inside.any():
                break
            pairs.append(pl.Series(up[inside] * names + code[inside] % names).unique())
        code = pl.concat(pairs).unique().to_numpy()
    else:
        code = pl.Series(_joined([row * names + kernel[at] for at, row in levels])).unique().to_numpy()
    frame = pl.DataFrame({"code": key_of[code // names] * names + code % names})
    return frame.group_by("code").agg(pl.len().alias("ranges"))


def _same_name_nested(found: Attribution, key_of: I64) -> bool:
    """Whether a range lies in one of the same group."""
    at = np.flatnonzero(found.nest.parent != NONE)
    above = found.nest.parent[at]
    while len(at):
        if np.any(key_of[at] == key_of[above]):
            return True
        above = found.nest.parent[above]
        inside = above != NONE
        at, above = at[inside], above[inside]
    return False


def _joined(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


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

"""Which kernels each NVTX range launched."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE
from stepscope.model.columns import RANGE_KIND
from stepscope.nsys.reports.attribution import Attribution
from stepscope.nsys.reports.grouping import Unsigned, grouped
from stepscope.nsys.reports.kernels import kernels
from stepscope.nsys.reports.nvtx import STYLES
from stepscope.nsys.reports.spec import BASE, MANGLED, Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import five, moments
from stepscope.nsys.reports.view import View, ints


def _sum(view: View, args: Args) -> pl.DataFrame:
    """Every kernel once per range that contains its launch, by (process, thread, range, kernel)."""
    view.need("ops", "calls", "ranges")
    named = kernels(view, args)
    attribution = view.attribution
    groups = attribution.ranges.select("rank", "tid", "label", "kind")
    keys = groups.unique(maintain_order=True).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("key"))
    key_of = groups.join(keys, on=groups.columns, how="left", maintain_order="left")["key"].to_numpy()
    ops = named.frame.select("kernel", "duration", "call", "rank")
    innermost = attribution.of_ops(ops["call"].fill_null(NONE).to_numpy())
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
    attribution = view.attribution
    kernel, duration = ints(ops, "kernel", "duration")
    names = int(kernel.max(initial=0)) + 1
    nested = _same_name_nested(attribution, key_of)  # then a kernel is in a group more than once
    if attribution.proper:
        pairs = _climbed(attribution, innermost, kernel, duration, key_of, names, with_op=nested)
        launches = _launches(attribution, innermost, kernel, names)
    else:
        until = view.calls["end_ns"].gather(ops["call"].fill_null(0)).to_numpy()
        levels = attribution.climb(innermost, until)
        code = _joined([key_of[row] * names + kernel[at] for at, row in levels])
        op = _joined([at for at, _ in levels])
        pairs = pl.DataFrame({"code": code, "duration": duration[op], "op": op})
        launches = pl.Series(_joined([row * names + kernel[at] for at, row in levels])).unique().to_numpy()
    summed = grouped(pairs, ["code"], moments("duration")).cast({"code": pl.Int64})
    # How many different ranges a group's kernels were launched in; codes above the outermost range have none.
    counted = pl.DataFrame({"code": key_of[launches // names] * names + launches % names})
    summed = summed.join(counted.group_by("code").agg(pl.len().alias("ranges")), on="code")
    if nested:
        once = pairs.group_by("code").agg(pl.col("op").n_unique().alias("kernels")).cast({"code": pl.Int64})
        summed = summed.join(once, on="code")
    else:
        summed = summed.with_columns(pl.col("n").alias("kernels"))
    key, kernel_code = pl.col("code") // names, pl.col("code") % names
    return summed.with_columns(key.alias("key"), kernel_code.cast(pl.UInt32).alias("kernel")).drop("code")


def _climbed(
    attribution: Attribution, innermost: I64, kernel: I64, duration: I64, key_of: I64, names: int, with_op: bool
) -> pl.DataFrame:
    """Every kernel with every range around it. Ranges are climbed, not kernels: those that share one climb together.

    The code of a kernel above the outermost range around it is beyond those of all groups.
    """
    op = np.flatnonzero(innermost != NONE)
    current = _distinct(innermost[op], len(attribution.nest.parent))
    place_of = np.zeros(len(attribution.nest.parent), dtype=np.int64)
    place_of[current] = np.arange(len(current))
    place = place_of[innermost[op]]
    beyond = (int(key_of.max(initial=0)) + 1) * names
    width = np.uint16 if beyond + names <= 2**16 else np.uint32 if beyond + names <= 2**32 else np.int64
    duration = duration[op]
    narrow: Unsigned = kernel[op].astype(width)
    frames = []
    inside = current != NONE
    while inside.any():
        group: Unsigned = np.where(inside, key_of[current] * names, beyond).astype(width)
        code = group[place] + narrow
        frames.append(pl.DataFrame({"code": code, "duration": duration, **({"op": op} if with_op else {})}))
        current = np.where(inside, attribution.nest.parent[current], NONE)
        inside = current != NONE
        if 2 * int(np.bincount(place, minlength=len(inside))[inside].sum()) < len(place):
            kept = inside[place]
            op, narrow, duration = op[kept], narrow[kept], duration[kept]
            place = (np.cumsum(inside) - 1)[place[kept]]
            current, inside = current[inside], inside[inside]
    if not frames:
        return pl.DataFrame(schema={"code": pl.Int64, "duration": pl.Int64, "op": pl.Int64})
    return pl.concat(frames)


def _launches(attribution: Attribution, innermost: I64, kernel: I64, names: int) -> I64:
    """Each (range, kernel) once: innermost ranges first; the same kernels were launched in the ranges above."""
    inside = innermost != NONE
    n = len(attribution.nest.parent) * names
    pairs = [_distinct(innermost[inside] * names + kernel[inside], n)]
    while len(pairs[-1]):
        code = pairs[-1]
        up = attribution.nest.parent[code // names]
        pairs.append(_distinct((up * names + code % names)[up != NONE], n))
    return _distinct(np.concatenate(pairs), n)


def _distinct(values: I64, n: int) -> I64:
    """The distinct ones of values below `n`."""
    if n > 8 * len(values):
        return pl.Series(values).unique().to_numpy()
    there = np.zeros(n, dtype=bool)
    there[values] = True
    return np.flatnonzero(there)


def _same_name_nested(attribution: Attribution, key_of: I64) -> bool:
    """Whether a range lies in one of the same group."""
    at = np.flatnonzero(attribution.nest.parent != NONE)
    above = attribution.nest.parent[at]
    while len(at):
        if np.any(key_of[at] == key_of[above]):
            return True
        above = attribution.nest.parent[above]
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

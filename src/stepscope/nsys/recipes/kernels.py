"""How long kernels take, as a histogram: one outline per kernel, over all ranks."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.picture import Histogram
from stepscope.nsys.recipes.spec import Outcome, Recipe, per_source, with_pid
from stepscope.nsys.recipes.stats import counted
from stepscope.nsys.reports.kernels import kernels
from stepscope.nsys.reports.spec import BASE, MANGLED, Args, Argument
from stepscope.nsys.reports.view import View

_BINS = Argument("bins", int, "how many bins, equal on a logarithmic scale", 30)
_NAME = Argument("name", str, "only kernels whose name contains this text; by default all of them")
_OUTLINES = 6


def _durations(view: View, args: Args) -> pl.DataFrame:
    named = kernels(view, args)
    rows = counted(named.frame.select("rank", pl.col("kernel"), "duration"), "duration")
    shown = named.decoded(rows).rename({"kernel": "name"})
    wanted = args.get("name")
    return shown.filter(pl.col("name").str.contains(str(wanted), literal=True)) if wanted is not None else shown


def _hist(profile: Profile, args: Args) -> Outcome:
    bins = args.number("bins")
    if not 1 <= bins <= 1000:
        raise BadInput(f"--bins {bins}", "give a number from 1 to 1000")
    notes: list[Note] = []
    counts = pl.concat(per_source(profile, _durations, args, notes))
    counts = counts.with_columns(pl.col("value").clip(1))
    if counts.height == 0:
        what = "kernels" if args.get("name") is None else f"kernels whose name contains {args['name']!r}"
        raise CannotAnswer(f"the profile has no {what}", "`stepscope recipe cuda_gpu_kern_sum` lists them")
    edges = _edges(int(counts["value"].min()), int(counts["value"].max()), bins)  # type: ignore[arg-type]
    place = np.clip(np.searchsorted(edges, counts["value"].to_numpy(), side="right") - 1, 0, len(edges) - 2)
    counts = counts.with_columns(pl.Series("bin", place.astype(np.int64)))
    span = pl.DataFrame({"bin": np.arange(len(edges) - 1), "from_ns": edges[:-1], "to_ns": edges[1:]})
    every = _table(counts, span, ["bin"])
    by_kernel = _table(counts, span, ["name", "bin"]).sort("name", "bin")
    by_rank = with_pid(profile, _table(counts, span, ["rank", "bin"]).sort("rank", "bin"))
    total = (
        counts.group_by("name")
        .agg((pl.col("value") * pl.col("n")).sum().alias("t"))
        .sort("t", "name", descending=[True, False])
    )
    top = total["name"].head(_OUTLINES).to_list()
    series = [(name, _outline(counts.filter(pl.col("name") == name), len(span))) for name in top]
    rest = counts.filter(~pl.col("name").is_in(top))
    if rest.height:
        series.append((f"{total.height - len(top)} others", _outline(rest, len(span))))
    picture = Histogram("Kernels by duration, all ranks", "duration_ns", [float(e) for e in edges], series)
    return Outcome({"all_hist": every, "kernel_hist": by_kernel, "rank_hist": by_rank}, [picture], notes)


def _edges(low: int, high: int, bins: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Whole nanoseconds, the last above the longest."""
    edges = np.unique(np.round(np.geomspace(low, high + 1, bins + 1)).astype(np.int64))
    edges[-1] = high + 1
    return edges if len(edges) > 1 else np.array([low, high + 1], dtype=np.int64)


def _table(counts: pl.DataFrame, span: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    summed = counts.group_by(keys).agg(
        pl.col("n").sum(),
        (pl.col("value") * pl.col("n")).sum().alias("total_ns"),
        pl.col("rank").n_unique().cast(pl.Int64).alias("ranks"),
    )
    how = "right" if keys == ["bin"] else "inner"
    binned = summed.join(span, on="bin", how=how).with_columns(pl.col("n", "total_ns", "ranks").fill_null(0))  # type: ignore[arg-type]
    return binned.sort(keys).select(*keys, "from_ns", "to_ns", "n", "total_ns", "ranks")


def _outline(counts: pl.DataFrame, bins: int) -> list[int]:
    return [int(v) for v in np.bincount(counts["bin"].to_numpy(), counts["n"].to_numpy(), minlength=bins)]


RECIPES = (
    Recipe(
        "cuda_gpu_kern_hist",
        "CUDA GPU Kernel Duration Histogram",
        partial(_hist),
        "How many kernels took how long, over all ranks, by kernel and by rank.",
        (_NAME, _BINS, BASE, MANGLED),
        ("bin",),
    ),
)

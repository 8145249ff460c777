"""Recipes on pace: when the n-th instance of a kernel or range came on each rank, and how long after the one before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from stepscope.errors import BadInput, CannotAnswer, meant
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.nsys.recipes.clocks import offsets
from stepscope.nsys.recipes.picture import Lines
from stepscope.nsys.recipes.spec import Mapping_, Outcome, Recipe, per_source, with_pid
from stepscope.nsys.recipes.stats import counted, statistics
from stepscope.nsys.reports.kernels import kernels
from stepscope.nsys.reports.projection import project
from stepscope.nsys.reports.spec import Args, Argument, Rows
from stepscope.nsys.reports.view import View

_NAME = Argument(
    "name", str, "name of the kernel or text of the range (`step #`: any number); by default the one that takes longest"
)
#: What stands for a number in the text of ranges that differ in their numbers only.
_FOLD = r"\d+", "#"
_SPAN = ("rank", "name", "start_ns", "end_ns")

#: Instances: `rank`, `name`, `start_ns`, `end_ns`.
Source = Callable[[View, Args], Rows]


def _kernels(view: View, args: Args) -> Rows:
    """Kernels by their name without templates, where the trace has it: that is what nsys asks for."""
    named = kernels(view, Args({**args, "base": True}))
    return Rows(
        named.frame.select("rank", pl.col("kernel").alias("name"), "start_ns", "end_ns"),
        {"name": named.texts["kernel"]},
    )


def _ranges(view: View, args: Args) -> Rows:
    view.need("ranges")
    return Rows(view.ranges.select(_SPAN), {"name": view.names})


def _projected(view: View, args: Args) -> Rows:
    view.need("ops", "calls", "ranges")
    made = project(view)
    ranges = view.attribution.ranges.select("rank", "name")
    ranges = ranges.with_columns(pl.Series("start_ns", made.start), pl.Series("end_ns", made.end))
    return Rows(ranges.filter(pl.Series(made.n > 0)).select(_SPAN), {"name": view.names})


def _totals(view: View, args: Args, source: Source) -> pl.DataFrame:
    rows = source(view, args)
    time = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return rows.decoded(rows.frame.group_by("name").agg(time.alias("total"), pl.len().alias("n")))


def _instances(view: View, args: Args, source: Source, name: str) -> pl.DataFrame:
    rows = source(view, args)
    kernels = rows.decoded(rows.frame)
    exact = kernels.filter(pl.col("name") == name)
    if source is not _kernels and not exact.height:  # ranges that are numbered: `step 5`, `step 6`
        exact = kernels.filter(pl.col("name").str.replace_all(*_FOLD) == name)
    return exact.drop("name")


def chosen(profile: Profile, source: Mapping_, args: Args, notes: list[Note], folds: bool = False) -> str:
    """The name asked for, or the one that takes longest of those that come more than once.

    Where it `folds`, texts that differ in their numbers only are one name, too.
    """
    totals = pl.concat(per_source(profile, source, args, notes)).drop_nulls("name")
    if folds:
        totals = pl.concat([totals, _families(totals)])
    totals = totals.group_by("name").agg(pl.all().sum()).sort("total", "name", descending=[True, False])
    if totals.height == 0:
        raise CannotAnswer("nothing of the kind in this part of the capture", "widen --start and --end")
    wanted = args.get("name")
    if wanted is None:
        several = totals.filter(pl.col("n") > 1)
        name = str((several if several.height else totals)["name"][0])
        notes.append(noted("name-chosen", name=name))
        return name
    if wanted not in totals["name"]:
        near = meant(str(wanted), totals["name"].to_list(), repr)
        raise BadInput(f"--name {str(wanted)!r}: there is none", near or f"{totals['name'][0]!r} takes longest")
    return str(wanted)


def _families(totals: pl.DataFrame) -> pl.DataFrame:
    """Texts that differ in their numbers only, as one: `step #`."""
    folded = totals.with_columns(pl.col("name").str.replace_all(*_FOLD).alias("family"))
    families = folded.group_by("family").agg(pl.col("total", "n").sum(), pl.col("name").n_unique().alias("texts"))
    several = families.filter(pl.col("texts") > 1, ~pl.col("family").is_in(totals["name"].implode()))
    return several.select(pl.col("family").alias("name"), *totals.columns[1:])


def _pace(profile: Profile, args: Args, source: Source) -> Outcome:
    notes: list[Note] = []
    name = chosen(profile, partial(_totals, source=source), args, notes, folds=source is not _kernels)
    clock = offsets(profile, notes)
    frames = per_source(profile, partial(_instances, source=source, name=name), args, [])
    instances = pl.concat(frames).sort("rank", "start_ns", "end_ns", maintain_order=True)
    before = pl.col("end_ns").shift(1).over("rank").fill_null(0)
    shift = pl.col("rank").replace_strict(clock, return_dtype=pl.Int64)
    instances = instances.with_columns(
        pl.int_range(pl.len()).over("rank").alias("index"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("dur_ns"),
        (pl.col("start_ns") - before).alias("delta_ns"),
    ).with_columns(
        pl.col("start_ns") + shift,
        pl.col("end_ns") + shift,
        pl.col("dur_ns").cum_sum().over("rank").alias("dur_accum_ns"),
        pl.col("delta_ns").cum_sum().over("rank").alias("delta_accum_ns"),
    )
    lacking = sorted(set(profile.rank_ids()) - set(instances["rank"].to_list()))
    if lacking:
        notes.append(noted("ranks-without", s="s" * (len(lacking) > 1), ranks_named=", ".join(map(str, lacking))))
    trace = with_pid(profile, instances.select("rank", "index", pl.exclude("rank", "index")))
    tables = {"rank_stats": _by_rank(profile, instances), "delta_stats": _by_index(instances), "trace": trace}
    tables |= {f"pace_{file}": _matrix(instances, column) for file, column in _MATRICES.items()}
    summary = {"name": name, "instances": instances.height}
    return Outcome(tables, [_progress(instances, name), _deltas(instances, name)], notes, summary)


#: Files of nsys's recipes: a line per instance, a column per rank.
_MATRICES = {
    "start": "start_ns",
    "end": "end_ns",
    "duration": "dur_ns",
    "duration_accum": "dur_accum_ns",
    "delta": "delta_ns",
    "delta_accum": "delta_accum_ns",
}


def _matrix(table: pl.DataFrame, column: str) -> pl.DataFrame:
    wide = table.pivot("rank", index="index", values=column, aggregate_function="first", sort_columns=False)
    return wide.sort("index").drop("index")


def _by_rank(profile: Profile, table: pl.DataFrame) -> pl.DataFrame:
    """Durations of a rank's instances, and the time between them; before the first nothing was waited for."""
    durations = statistics(counted(table.select("rank", "dur_ns"), "dur_ns"), ["rank"], "linear")
    durations = durations.rename({c: f"{c}_ns" for c in durations.columns if c not in ("rank", "n")})
    between = (
        table.filter(pl.col("index") > 0)
        .group_by("rank")
        .agg(
            pl.col("delta_ns").median().alias("delta_med_ns"),
            pl.col("delta_ns").max().alias("delta_max_ns"),
            pl.col("delta_ns").std().round(1).alias("delta_std_ns"),
        )
    )
    ends = table.group_by("rank").agg(
        pl.col("start_ns").min().alias("first_start_ns"), pl.col("end_ns").max().alias("last_end_ns")
    )
    joined = durations.join(between, on="rank", how="left").join(ends, on="rank", how="left").sort("rank")
    return with_pid(profile, joined)


def _by_index(table: pl.DataFrame) -> pl.DataFrame:
    """How far ranks are apart at each instance, and how their waits differ."""
    stats = statistics(counted(table.select("index", "delta_ns"), "delta_ns"), ["index"], "linear")
    stats = stats.rename({c: f"delta_{c}_ns" for c in stats.columns if c not in ("index", "n")})
    skew = table.group_by("index").agg((pl.col("start_ns").max() - pl.col("start_ns").min()).alias("skew_ns"))
    return stats.join(skew, on="index", how="left", maintain_order="left")


def _series(table: pl.DataFrame, x: str, y: str) -> list[tuple[str, list[int], list[int]]]:
    return [
        (f"rank {rank}", mine[x].to_list(), mine[y].to_list())
        for (rank,), mine in table.group_by("rank", maintain_order=True)
    ]


def _progress(table: pl.DataFrame, name: str) -> Lines:
    return Lines(f"Progress of {name}", "start_ns", "instance", _series(table, "start_ns", "index"))


def _deltas(table: pl.DataFrame, name: str) -> Lines:
    later = table.filter(pl.col("index") > 0)
    return Lines(
        "Time since the end of the instance before", "instance", "delta_ns", _series(later, "index", "delta_ns")
    )


_DOC = (
    "Starts are on one clock, that of the captures' starts. A delta is the time since the end of the instance before;"
    " that of the first one counts from the start of its capture, as in nsys."
)

RECIPES = tuple(
    Recipe(name, title, partial(_pace, source=source), f"{doc} {_DOC}", (_NAME,), ("rank",))
    for name, title, source, doc in (
        ("cuda_gpu_kern_pace", "CUDA GPU Kernel Pacing", _kernels, "Progress of one kernel on every rank."),
        ("nvtx_pace", "NVTX Pacing", _ranges, "Progress of one NVTX range on every rank, on the host."),
        ("nvtx_gpu_proj_pace", "NVTX GPU Projection Pacing", _projected, "Progress of one NVTX range, on the GPU."),
    )
)

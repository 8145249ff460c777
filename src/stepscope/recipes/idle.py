"""The rules `gpu_gaps` and `gpu_time_util` over many ranks."""

from __future__ import annotations

from functools import partial

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.nsysreports.gpuuse import gaps, utilization
from stepscope.nsysreports.spec import Args, Argument
from stepscope.nsysreports.view import View
from stepscope.recipes.picture import Bars
from stepscope.recipes.spec import Mapping_, Outcome, Recipe, per_source

_ROWS = Argument("rows", int, "most rows per file; -1 for all", -1)


def _ranked(view: View, frame: pl.DataFrame, args: Args) -> pl.DataFrame:
    """With the rank of each pid of this source, and no more rows than asked for."""
    rows = args.number("rows")
    ranks = view.profile.ranks.select("pid", "rank")
    frame = (
        (frame.head(rows) if rows >= 0 else frame).drop("row").join(ranks, on="pid", how="left", maintain_order="left")
    )
    return frame.rename({"duration": "dur_ns"}).select(
        "rank",
        "pid",
        "device",
        "start_ns",
        "dur_ns",
        pl.exclude("rank", "pid", "device", "start_ns", "dur_ns", "context"),
        "context",
    )


def _gaps(view: View, args: Args) -> pl.DataFrame:
    return _ranked(view, gaps(view, args.number("gap") * 1_000_000), args)


def _used(view: View, args: Args) -> pl.DataFrame:
    found = utilization(view, args.number("chunks"), args.number("threshold"))
    return _ranked(view, found.rename({"used": "used_pct"}), args)


def _listed(profile: Profile, args: Args, mapping: Mapping_, order: list[str], descending: list[bool]) -> Outcome:
    if "chunks" in args and not 1 <= args.number("chunks") <= 1000:
        raise BadInput(f"--chunks {args['chunks']}", "give a number from 1 to 1000")
    notes: list[str] = []
    table = pl.concat(per_source(profile, mapping, args, notes)).sort(order, descending=descending)
    ranks = table.group_by("rank", "pid", "device").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").max().alias("max_ns"),
    )
    quiet = len(set(profile.rank_ids()) - set(table["rank"].to_list()))
    if quiet:
        notes.append(f"nothing found on {quiet} of {profile.ranks.height} ranks")
    ranks = ranks.sort("rank", "device")
    picture = Bars(
        "Total by rank",
        [f"rank {r} · GPU {d}" for r, d in ranks.select("rank", "device").iter_rows()],
        ranks["total_ns"].to_list(),
        "total_ns",
        [f"{row['n']} of them, the longest {row['max_ns']} ns" for row in ranks.iter_rows(named=True)],
    )
    return Outcome({"analysis": table, "ranks": ranks}, [picture], notes)


_HEADERS = {
    "dur_ns": "Duration",
    "start_ns": "Start",
    "pid": "PID",
    "device": "Device ID",
    "context": "Context ID",
    "used_pct": "In-Use",
    "rank": "Rank",
}

RECIPES = (
    Recipe(
        "gpu_gaps",
        "GPU Gaps",
        partial(_listed, mapping=_gaps, order=["dur_ns", "start_ns"], descending=[True, False]),
        "Times in which a rank kept a device idle for longer than a threshold, longest first.",
        (_ROWS, Argument("gap", int, "shortest gap to show, in milliseconds", 500)),
        headers=_HEADERS,
    ),
    Recipe(
        "gpu_time_util",
        "GPU Time Utilization",
        partial(_listed, mapping=_used, order=["used_pct", "dur_ns"], descending=[False, False]),
        "Times in which a rank used a device for less than a threshold. Operations side by side add up, as in nsys.",
        (
            _ROWS,
            Argument("threshold", int, "show what is below this percentage", 50),
            Argument("chunks", int, "cut the time from first to last operation into so many pieces", 30),
        ),
        headers=_HEADERS,
    ),
)

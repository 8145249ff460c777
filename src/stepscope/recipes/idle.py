"""The rules `gpu_gaps` and `gpu_time_util` over many ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.nsysreports.gpuuse import gaps, utilization
from stepscope.nsysreports.spec import Args, Argument
from stepscope.nsysreports.view import View
from stepscope.recipes.picture import Bars
from stepscope.recipes.spec import Mapping_, Outcome, Recipe, per_source, view_of

#: Columns to sort by, and whether the greatest come first.
Order = dict[str, bool]

_LONGEST: Order = {"dur_ns": True, "start_ns": False}
_LEAST: Order = {"used_pct": False, "dur_ns": False}
_PLACE = ("rank", "pid", "device", "start_ns", "dur_ns")
_ROWS = Argument("rows", int, "most rows per file; -1 for all", -1)


def _by_rank(view: View, args: Args, found: Callable[[View], pl.DataFrame], order: Order) -> pl.DataFrame:
    """What a rule finds on each rank of a source, in order, and no more rows than asked for."""
    frames = []
    for rank, pid in view.profile.ranks.select("rank", "pid").iter_rows():
        frame = found(view_of(view.profile.select([rank]), args)).rename({"duration": "dur_ns"})
        frame = frame.with_columns(pl.lit(rank, pl.Int32).alias("rank"), pl.lit(pid, pl.Int64).alias("pid"))
        frames.append(frame.select(*_PLACE, pl.exclude(*_PLACE, "row", "context"), "context"))
    joined = pl.concat(frames).sort(list(order), descending=list(order.values()), maintain_order=True)
    rows = args.number("rows")
    return joined.head(rows) if rows >= 0 else joined


def _gaps(view: View, args: Args) -> pl.DataFrame:
    return _by_rank(view, args, lambda one: gaps(one, args.number("gap") * 1_000_000), _LONGEST)


def _used(view: View, args: Args) -> pl.DataFrame:
    def least_used(one: View) -> pl.DataFrame:
        return utilization(one, args.number("chunks"), args.number("threshold")).rename({"used": "used_pct"})

    return _by_rank(view, args, least_used, _LEAST)


def _listed(profile: Profile, args: Args, mapping: Mapping_, order: Order) -> Outcome:
    if "chunks" in args and not 1 <= args.number("chunks") <= 1000:
        raise BadInput(f"--chunks {args['chunks']}", "give a number from 1 to 1000")
    notes: list[str] = []
    table = pl.concat(per_source(profile, mapping, args, notes)).sort(list(order), descending=list(order.values()))
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
        partial(_listed, mapping=_gaps, order=_LONGEST),
        "Times in which a rank kept a device idle for longer than a threshold, longest first.",
        (_ROWS, Argument("gap", int, "shortest gap to show, in milliseconds", 500)),
        headers=_HEADERS,
    ),
    Recipe(
        "gpu_time_util",
        "GPU Time Utilization",
        partial(_listed, mapping=_used, order=_LEAST),
        "Times in which a rank used a device for less than a threshold. Operations side by side add up, as in nsys.",
        (
            _ROWS,
            Argument("threshold", int, "show what is below this percentage", 50),
            Argument("chunks", int, "cut the time from first to last operation into so many pieces", 30),
        ),
        headers=_HEADERS,
    ),
)

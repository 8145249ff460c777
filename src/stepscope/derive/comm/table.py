"""The table behind `collectives`: waits, transfers and bandwidths of every meeting."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.axes import AXIS_OF, axes_of
from stepscope.derive.comm.kinds import ALL_TO_ALL, bus_factors
from stepscope.derive.windows.choosing import settled, windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text


def table_of(a: Across) -> pl.DataFrame:
    """One row per meeting, in order of the last arrival."""
    first_start, last_end, first_end = (
        f.reduceat(x, a.first) for f, x in ((np.minimum, a.start), (np.maximum, a.end), (np.minimum, a.end))
    )
    alone = pl.Series(a.count < 2)
    label = {c: comm.label for c, comm in a.matched.communicators.items()}
    members = {c: ranks_text(comm.members) for c, comm in a.matched.communicators.items()}
    known = axes_of(a.matched.communicators, a.meetings, a.ranks)
    axes = {c: axis.name for c, axis in known.items()}
    told = {c: axis.name for c, axis in known.items() if axis.known_by in ("labels", "name")}
    waits = a.count * a.last - np.add.reduceat(a.start, a.first)
    n = pl.col("size").cast(pl.Float64)
    only = pl.lit(alone)
    table = a.meetings.with_columns(
        pl.col("communicator").replace_strict(label, default=None, return_dtype=pl.String).alias("group"),
        pl.when(pl.col("src") >= 0)
        .then(pl.concat_str("src", pl.lit(">"), "dst"))
        .otherwise(pl.col("communicator").replace_strict(members, default=None, return_dtype=pl.String))
        .alias("ranks"),
        pl.Series("start_ns", a.last),
        pl.when(~only).then(pl.Series(a.transfer)).alias("transfer_ns"),
        pl.when(~only).then(pl.Series(a.last - first_start)).alias("max_wait_ns"),
        pl.when(~only).then(pl.Series(a.rank[a.last_side])).alias("last_rank"),
        pl.when(~only).then(pl.Series(a.rank[a.first_side])).alias("first_rank"),
        pl.when(~only).then(pl.Series(last_end - first_end)).alias("skew_ns"),
        pl.when(~only).then(pl.Series(waits)).alias("wait_ns"),
        pl.col("kind").alias("op"),
        # What labels or the name say is the group's axis, as in `mesh`; of other groups each op may serve another.
        pl.coalesce(
            pl.col("communicator").replace_strict(told, default=None, return_dtype=pl.String),
            pl.col("purpose").replace_strict(AXIS_OF, default=None, return_dtype=pl.String),
            pl.col("communicator").replace_strict(axes, default=None, return_dtype=pl.String),
        ).alias("axis"),
    )
    speed = pl.when(pl.col("transfer_ns") > 0).then(pl.col("bytes") / pl.col("transfer_ns"))
    table = table.with_columns(speed.alias("algbw_gbps"))
    table = table.with_columns((pl.col("algbw_gbps") * bus_factors(pl.col("kind"), n)).alias("busbw_gbps"))
    return table.sort("start_ns", "group", "seq", maintain_order=True)


def inside(
    profile: Profile, spec: WindowSpec, a: Across, table: pl.DataFrame
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows of the window: of the whole capture, unless a window was asked for; then what any rank has in it.

    Each names the window (`WINDOW_COLUMNS`) of the first rank that has it in one.
    """
    if spec == WindowSpec():
        whole = pl.lit("capture").alias("window"), pl.lit(0, pl.Int64).alias("index"), pl.lit(WHOLE).alias("label")
        return table.with_columns(*whole), _whole(profile, a)
    found = profile.map(_ops_inside, settled(profile, spec))
    kept = pl.concat([f for f, _ in found])
    sides = a.matched.sides.select("meeting", "rank", "op").join(kept, on=["rank", "op"]).sort("rank", "index")
    mine = sides.drop("rank", "op").unique("meeting", keep="first")
    return table.join(mine, on="meeting", maintain_order="left"), [w for _, spans in found for w in spans]


def _ops_inside(part: Profile, spec: WindowSpec) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    chosen = windows(part, spec)
    frames = [w.named(pl.DataFrame({"rank": [w.rank] * len(w.ops), "op": w.ops})) for w in chosen.spans]
    schema = {"rank": pl.Int32, "op": pl.Int64, "window": pl.String, "index": pl.Int64, "label": pl.String}
    return pl.concat([pl.DataFrame(schema=schema), *(f.cast(schema) for f in frames)]), chosen.rows()  # type: ignore[arg-type]


def _whole(profile: Profile, a: Across) -> list[dict[str, Any]]:
    """The window of a rank: its communication, first to last, on its own clock."""
    sides = a.matched.sides
    spans = sides.group_by("rank").agg(
        (pl.col("start_ns") - pl.col("shift")).min().alias("lo"), (pl.col("end_ns") - pl.col("shift")).max().alias("hi")
    )
    pids = dict(profile.ranks.select("rank", "pid").iter_rows())
    return [
        {
            "rank": rank,
            "pid": pids[rank],
            "label": WHOLE,
            "index": 0,
            "count": 1,
            "cpu_start_ns": None,
            "cpu_end_ns": None,
            "gpu_start_ns": lo,
            "gpu_end_ns": hi,
            "kind": "capture",
        }
        for rank, lo, hi in spans.sort("rank").iter_rows()
    ]


def imbalance(a: Across, meetings: I64) -> list[dict[str, Any]]:
    """Per rank, what it has in all-to-alls against its group: bytes, and time after the last arrival."""
    chosen = a.meetings["kind"].to_numpy()[meetings] == ALL_TO_ALL
    mine = np.isin(a.meeting, meetings[chosen]) & (a.count[a.meeting] > 1)
    if not mine.any():
        return []
    frame = pl.DataFrame(
        {
            "meeting": a.meeting[mine],
            "rank": a.rank[mine],
            "bytes": a.matched.sides["bytes"].filter(pl.Series(mine)),
            "own_ns": np.maximum(a.end - a.last[a.meeting], 0)[mine],
        }
    )
    ratio = [(pl.col(c) / pl.col(c).mean().over("meeting")).alias(f"{c}_ratio") for c in ("bytes", "own_ns")]
    found = (
        frame.with_columns(ratio)
        .group_by("rank")
        .agg(pl.len().alias("n"), pl.col("bytes_ratio").mean(), pl.col("own_ns_ratio").mean())
        .sort("rank")
    )
    return [
        {
            "rank": rank,
            "n": n,
            "bytes_vs_mean_pct": None if size is None or np.isnan(size) else 100.0 * size,
            "time_vs_mean_pct": None if time is None or np.isnan(time) else 100.0 * time,
        }
        for rank, n, size, time in found.iter_rows()
    ]

"""Which meetings a window has, and how unevenly all-to-alls share their bytes."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.kinds import ALL_TO_ALL
from stepscope.derive.windows.choosing import settled, windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.window import WHOLE
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile
from stepscope.model.result import WindowRow


class Share(TypedDict):
    """What a rank has in all-to-alls, beside the mean of its group."""

    rank: int
    n: int
    bytes_vs_mean_pct: float | None
    time_vs_mean_pct: float | None


def inside(profile: Profile, spec: WindowSpec, a: Across, table: pl.DataFrame) -> tuple[pl.DataFrame, list[WindowRow]]:
    """The rows of the window: of the whole capture, unless a window was asked for; then what any rank has in it.

    Each names the window (`OfWindow`) of the first rank that has it in one.
    """
    if spec == WindowSpec():
        whole = pl.lit("capture").alias("window"), pl.lit(0, pl.Int64).alias("index"), pl.lit(WHOLE).alias("label")
        return table.with_columns(*whole), _whole(profile, a)
    ops_inside = profile.map(_ops_inside, settled(profile, spec))
    kept = pl.concat([f for f, _ in ops_inside])
    sides = a.matched.sides.select("meeting", "rank", "op").join(kept, on=["rank", "op"]).sort("rank", "index")
    mine = sides.drop("rank", "op").unique("meeting", keep="first")
    return table.join(mine, on="meeting", maintain_order="left"), [w for _, spans in ops_inside for w in spans]


def _ops_inside(part: Profile, spec: WindowSpec) -> tuple[pl.DataFrame, list[WindowRow]]:
    chosen = windows(part, spec)
    frames = [w.named(pl.DataFrame({"rank": [w.rank] * len(w.ops), "op": w.ops})) for w in chosen.spans]
    schema = {"rank": pl.Int32, "op": pl.Int64, "window": pl.String, "index": pl.Int64, "label": pl.String}
    return pl.concat([pl.DataFrame(schema=schema), *(f.cast(schema) for f in frames)]), chosen.rows()  # type: ignore[arg-type]


def _whole(profile: Profile, a: Across) -> list[WindowRow]:
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


def imbalance(a: Across, meetings: I64) -> list[Share]:
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
    by_rank = (
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
        for rank, n, size, time in by_rank.iter_rows()
    ]

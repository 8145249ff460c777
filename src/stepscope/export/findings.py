"""Findings as a track of their own: each over the places where it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from stepscope.derive.comm.common_clock import CommonClock
from stepscope.export.events import Layer, Texts
from stepscope.export.tracks import Tracks
from stepscope.model.result import WindowRow

NAME = "findings"
_TEXTS = ("id", "ranks", "cause", "evidence", "try_next", "command", "stage")
_NUMBERS = {
    "recoverable_ns": pl.Int64,
    "expected_ns": pl.Int64,
    "share_pct": pl.Float64,
    "recoverable_low_ns": pl.Int64,
    "recoverable_high_ns": pl.Int64,
}


def findings_layer(
    rows: pl.DataFrame, windows: Sequence[WindowRow], clock: CommonClock, tracks: Tracks, texts: Texts
) -> Layer | None:
    """An event for every place of a finding; over the window of the first rank where a finding names none."""
    events = [{**row, **place} for row in rows.iter_rows(named=True) for place in _places(row, windows, clock)]
    if not events:
        return None
    events.sort(key=lambda e: (e["start"], -e["end"]))
    start, end, rank = (pl.Series(k, [e[k] for e in events], dtype=pl.Int64) for k in ("start", "end", "rank"))
    group = tracks.get(NAME)

    def track(rank: int, lane: int) -> int:
        return tracks.get(f"findings of rank {rank}", group, lane=lane, order=rank)

    columns = [
        start,
        end,
        pl.Series("track", tracks.spread(rank.to_frame(), track, start.to_numpy(), end.to_numpy())),
        _numbered(events, "title", texts),
        *(_numbered(events, c, texts) for c in _TEXTS),
        *(pl.Series(c, [e[c] for e in events], dtype=dtype) for c, dtype in _NUMBERS.items()),
    ]
    there = [c for c in columns if c.null_count() < len(c)]
    return Layer(NAME, None, pl.DataFrame(there), frozenset(_TEXTS) & {c.name for c in there})


def _numbered(events: Sequence[dict[str, Any]], name: str, texts: Texts) -> pl.Series:
    numbers = [None if e[name] is None else texts.of(str(e[name])) for e in events]
    return pl.Series(name, numbers, dtype=pl.UInt32)


def _places(row: dict[str, Any], windows: Sequence[WindowRow], clock: CommonClock) -> list[dict[str, int]]:
    on_gpu = [w for w in windows if w["gpu_start_ns"] is not None][:1]
    places = row["where"] or [
        {"rank": w["rank"], "start_ns": w["gpu_start_ns"], "end_ns": w["gpu_end_ns"]} for w in on_gpu
    ]
    return [{"rank": p["rank"], **{t: clock.moment(p["rank"], p[f"{t}_ns"]) for t in ("start", "end")}} for p in places]

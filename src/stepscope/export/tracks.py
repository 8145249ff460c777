"""Where events are drawn: a group per rank, in it a track per stream, and per thread those of ranges, ops and calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from stepscope.intervals.apart import apart
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.nesting import nest

#: Order of what a rank has, and of what a thread has.
_OF_RANK = ("stream", "counter", "thread", "communication", "synchronization", "dependencies", "allocator")
_OF_THREAD = ("ranges", "ops", "osrt", "CUDA calls")
#: Kinds of host events that lie in one another on a thread: torch's ops, Python's functions, what compiles them.
_TORCH = ("cpu_op", "python", "compile", "gc")


@dataclass(frozen=True)
class Track:
    """A place for events; `rank` where it is the group of a whole rank."""

    uuid: int
    name: str
    parent: int | None = None
    order: int = 0
    rank: int | None = None
    counter: bool = False


@dataclass
class Tracks:
    """All tracks, in the order in which they were asked for: parents before their children."""

    all: list[Track] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def get(self, name: str, parent: int | None = None, *, lane: int = 0, order: int = 0, counter: bool = False) -> int:
        """The track of this name below `parent`. Lanes of one name are drawn as one track."""
        key = (name, parent, lane)
        if key not in self._known:
            self._known[key] = len(self.all) + 1
            self.all.append(Track(len(self.all) + 1, name, parent, order, counter=counter))
        return self._known[key]

    def rank(self, row: dict[str, Any]) -> int:
        """The group of a rank: a row of the profile's ranks."""
        key = ("rank", row["rank"])
        if key not in self._known:
            about = [str(v) for v in (row["host"], row["gpu"]) if v]
            name = f"rank {row['rank']}" + (f" ({', '.join(about)})" if about else "")
            self._known[key] = len(self.all) + 1
            self.all.append(Track(len(self.all) + 1, name, order=row["rank"] + 1, rank=row["rank"]))
        return self._known[key]

    def spread(
        self, keys: pl.DataFrame, track: Callable[..., int], start: I64, end: I64, *, nested: bool = False
    ) -> I64:
        """The track of each row: `track(*key, lane)` is asked once for each key and lane that there is."""
        distinct = keys.unique().sort(keys.columns, nulls_last=False)
        numbered = keys.join(
            distinct.with_row_index("group"), on=keys.columns, how="left", nulls_equal=True, maintain_order="left"
        )
        group = numbered["group"].cast(pl.Int64).to_numpy()
        lane = lanes(group, start, end, nested=nested)
        width = int(lane.max()) + 1 if len(lane) else 1
        cells, of = np.unique(group * width + lane, return_inverse=True)
        ids = [track(*distinct.row(cell // width), cell % width) for cell in cells.tolist()]
        return np.array(ids, dtype=np.int64)[of.reshape(-1)]


def tracks_of(tracks: Tracks, row: dict[str, Any], table: str, frame: pl.DataFrame, start: I64, end: I64) -> I64:
    """The track of every row of one rank's table."""
    rank = tracks.rank(row)
    if table == "ops":
        return _streams(tracks, rank, frame, start, end)
    if table == "counters":
        return _counters(tracks, rank, frame)
    if table in ("calls", "ranges", "host"):
        return _threads(tracks, rank, table, frame, start, end)
    name = {"syncs": "synchronization", "comms": "communication", "allocations": "allocator"}.get(table, table)
    order = _OF_RANK.index(name)
    keys = pl.DataFrame({"name": [name]}).select(pl.col("name").repeat_by(len(start)).explode())
    return tracks.spread(keys, lambda name, lane: tracks.get(name, rank, lane=lane, order=order), start, end)


def _streams(tracks: Tracks, rank: int, frame: pl.DataFrame, start: I64, end: I64) -> I64:
    several = frame["device"].n_unique() > 1

    def track(device: int, stream: int, lane: int) -> int:
        name = f"GPU {device} stream {stream}" if several else f"stream {stream}"
        return tracks.get(name, rank, lane=lane, order=_OF_RANK.index("stream"))

    return tracks.spread(frame.select("device", "stream"), track, start, end)


def _counters(tracks: Tracks, rank: int, frame: pl.DataFrame) -> I64:
    """By device and name of the metric; `title` is its text."""
    several = frame["device"].n_unique() > 1

    def track(device: int | None, title: str, _: int) -> int:
        name = f"GPU {device} {title}" if several and device is not None else title
        return tracks.get(name, rank, order=_OF_RANK.index("counter"), counter=True)

    moments = np.arange(frame.height, dtype=np.int64)  # samples never overlap
    return tracks.spread(frame.select("device", "title"), track, moments, moments)


def _threads(tracks: Tracks, rank: int, table: str, frame: pl.DataFrame, start: I64, end: I64) -> I64:
    """Calls, ranges and host events, by thread; ranges that may cross threads are of none."""
    tid = pl.col("tid")
    if table == "calls":
        what = pl.lit("CUDA calls")
    elif table == "ranges":
        crosses = pl.col("kind") == "startend"
        what = pl.when(crosses).then(pl.lit("ranges across threads")).otherwise(pl.lit("ranges"))
        tid = pl.when(~crosses).then(tid)
    else:
        kind = pl.col("kind").cast(pl.String)
        what = pl.when(kind.is_in(_TORCH)).then(pl.lit("ops")).otherwise(kind)

    def track(tid: int | None, what: str, lane: int) -> int:
        order = _OF_RANK.index("thread")
        if tid is None:
            return tracks.get(what, rank, lane=lane, order=order)
        thread = tracks.get(f"thread {tid}", rank, order=order)
        return tracks.get(what, thread, lane=lane, order=(*_OF_THREAD, what).index(what))

    return tracks.spread(frame.select(tid.alias("tid"), what.alias("what")), track, start, end, nested=True)


def lanes(track: I64, start: I64, end: I64, *, nested: bool) -> I64:
    """The lane of each row within its track. On a lane no two rows overlap; with `nested`, one may lie in another."""
    lane = np.zeros(len(start), np.int64)
    left = np.arange(len(start), dtype=np.int64)
    while len(left):
        stays = (_nesting if nested else _disjoint)(track[left], start[left], end[left])
        left = left[~stays]
        lane[left] += 1
    return lane


def _disjoint(track: I64, start: I64, end: I64) -> Mask:
    """Rows that one lane takes, greedily: the first, then always the next that starts once it has ended."""
    order = np.lexsort((end, start, track))
    # Tracks one behind the other on one axis: none overlaps the next.
    span = int(end.max()) - int(start.min()) + 1
    base = track[order] * span - int(start.min())
    begins, ends = start[order] + base, end[order] + base
    stays = np.zeros(len(start), dtype=bool)
    if (begins[1:] >= ends[:-1]).all():
        stays[:] = True
        return stays
    stays[order[apart(begins, ends)]] = True
    return stays


def _nesting(track: I64, start: I64, end: I64) -> Mask:
    """Rows that lie in one another or apart: those that outlast what they began in are left out."""
    stays = np.ones(len(start), dtype=bool)
    order = np.lexsort((start, track))
    if ((start[order][1:] >= end[order][:-1]) | (track[order][1:] != track[order][:-1])).all():
        return stays  # most threads do one thing after the other
    while True:
        rows = np.flatnonzero(stays)
        parent = nest(track[rows], start[rows], end[rows]).parent
        outlasts = (parent != NONE) & (end[rows] > end[rows][parent])
        if not outlasts.any():
            return stays
        stays[rows[outlasts]] = False

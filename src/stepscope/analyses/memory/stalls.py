"""When the allocator went to CUDA, which takes milliseconds and may wait for the GPU: every segment asked for or
returned, and every time that memory ran out; with the CUDA call and the idle time that it caused, where a timeline of
the same run is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analyses.memory.ledger import Ledger
from stepscope.analyses.memory.origin import NOT_RECORDED
from stepscope.derive.host.idle_causes import ALLOC, idle_causes
from stepscope.derive.memory.history import History
from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64, NONE, take
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

_AFTER = Threshold(
    2000.0,
    "µs",
    "the allocator notes a segment right after the call that got it; the profiler may hold it up in between",
    ("tests/analyses/test_memory.py",),
)
_BEFORE = Threshold(
    50.0,
    "µs",
    "clocks of the snapshot and of the trace differ by less",
    ("tests/analyses/test_memory.py",),
)
SCHEMA = {
    "start_ns": pl.Int64,
    "kind": pl.String,
    "bytes": pl.Int64,
    "frame": pl.String,
    "call": pl.String,
    "call_ns": pl.Int64,
    "idle_ns": pl.Int64,
}
_KINDS = {
    "segment_alloc": "segment asked of CUDA",
    "segment_map": "pages mapped",
    "segment_unmap": "pages returned",
    "oom": "out of memory",
}
#: Who returned a segment: `empty_cache`, or the allocator itself because CUDA had no more.
_EMPTIED, _RETRIED = "segment returned: empty_cache", "segment returned: CUDA had no more"


@dataclass(frozen=True)
class Timeline:
    """Calls of one rank that manage memory, on the clock of the allocator's history."""

    start: I64
    end: I64
    name: pl.Series
    idle: I64  # of the GPU, while the host was in the call
    total_idle: int


def stalls(ledger: Ledger, timeline: Timeline | None) -> pl.DataFrame:
    """A row for each of them, in order."""
    history = ledger.history
    action = history.action.to_numpy() if history.events else np.empty(0, object)
    change = np.diff(history.reserved)
    kinds = np.full(history.events, "", dtype=object)
    for name, text in _KINDS.items():
        kinds[action == name] = text
    kinds[action == "segment_free"] = _RETRIED
    size = history.size.copy()
    if history.segments is None:  # Kineto: what is reserved changes
        kinds[change > 0], kinds[change < 0] = _KINDS["segment_alloc"], "segment returned"
        size = np.abs(change)
    rows = np.flatnonzero(kinds != "")
    stack = ledger.stacks_of_events[rows]
    frame = pl.Series([NOT_RECORDED] * len(rows), dtype=pl.String)
    if ledger.stacks.recorded and len(rows):
        frame = ledger.stacks.named(stack)
        emptied = (stack != NONE) & take(ledger.stacks.empties, stack, False) & (action[rows] == "segment_free")
        kinds[rows[emptied]] = _EMPTIED
    time = history.time[rows] if history.time is not None else None
    table = {
        "start_ns": pl.Series([None] * len(rows), dtype=pl.Int64) if time is None else time,
        "kind": kinds[rows].astype(str) if len(rows) else [],
        "bytes": size[rows],
        "frame": frame,
        "call": [None] * len(rows),
        "call_ns": [None] * len(rows),
        "idle_ns": [None] * len(rows),
    }
    stalls = pl.DataFrame(table, schema=SCHEMA)
    if timeline is None or time is None or not len(timeline.start):
        return stalls
    at = np.searchsorted(timeline.start, time + _BEFORE.ns) - 1
    near = (at >= 0) & (timeline.end[np.maximum(at, 0)] >= time - _AFTER.ns)
    at = np.where(near, at, NONE)
    there = pl.Series(near)
    length = timeline.end - timeline.start
    return stalls.with_columns(
        pl.when(there).then(timeline.name.gather(np.maximum(at, 0))).alias("call"),
        pl.when(there).then(pl.Series(take(length, at, 0))).alias("call_ns"),
        pl.when(there).then(pl.Series(take(timeline.idle, at, 0))).alias("idle_ns"),
    )


def timeline_of(own: Profile, history: History, other: Profile | None) -> Timeline | None:
    """The timeline of a rank: that of the profile itself, or of another one of the same run, on the profile's clock."""
    profile = other if other is not None else own
    if not profile.has("calls") or not profile.has("ops"):
        if other is not None:
            raise CannotAnswer(
                "--timeline: it has no GPU activity with CUDA calls", "give an nsys or torch.profiler trace"
            )
        return None
    data = _same_rank(profile, history.rank)
    shift = 0
    if other is not None:
        shift = _shift(own, other, history.rank, data.rank)
        _same_time(data, shift, history)
    rows = np.flatnonzero(of_family(data, Family.ALLOC, Family.FREE))
    start, end = (data.calls[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
    idle = np.zeros(data.calls.height, dtype=np.int64)
    if len(data.start):
        pieces = idle_causes(data, int(data.start.min()), int(data.end.max()))
        mine = (pieces.cause == ALLOC) & (pieces.call != NONE)
        np.add.at(idle, pieces.call[mine], (pieces.end - pieces.start)[mine])
    order = np.argsort(start, kind="stable")
    names = profile.names.gather(data.calls["name"].gather(rows[order]))
    return Timeline(start[order] + shift, end[order] + shift, names, idle[rows[order]], int(idle.sum()))


def _same_rank(profile: Profile, rank: int) -> RankData:
    ranks = list(ranks_of(profile))
    same = [d for d in ranks if d.rank == rank]
    if same or len(ranks) == 1:
        return same[0] if same else ranks[0]
    raise CannotAnswer(f"--timeline: it has no rank {rank}", "give the trace of the same rank, or name files rank<N>")


def _same_time(data: RankData, shift: int, history: History) -> None:
    """Refuse a trace of another time."""
    if history.time is None or not len(history.time) or not data.calls.height:
        return
    start, end = data.calls["start_ns"].to_numpy().min() + shift, data.calls["end_ns"].to_numpy().max() + shift
    if start > history.time.max() or end < history.time.min():
        raise CannotAnswer("--timeline: it was recorded at another time", "give a trace of the same run")


def _shift(own: Profile, other: Profile, rank: int, other_rank: int) -> int:
    """What to add to times of the other profile: both know when their zero was."""
    epochs = []
    for profile, number in ((own, rank), (other, other_rank)):
        source = profile.ranks.filter(pl.col("rank") == number)["source"][0]
        epochs.append(profile.source_info(source).epoch_ns)
    if epochs[0] is None or epochs[1] is None:
        raise CannotAnswer(
            "--timeline: one of the files does not say when it began", "record both with recent versions"
        )
    return int(epochs[1]) - int(epochs[0])

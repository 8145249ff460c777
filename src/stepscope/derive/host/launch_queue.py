"""How many launches a stream has pending, as a step function of time, and where the launch queue was full.

An entry is one launch call for one stream: it is pending from the start of the call to the first start of what it
launched (a graph launch is one entry, whatever it holds). This is the definition of traceinsight's queue length. A
launch that finds its stream's queue full waits until one of that stream's has started; events take no room.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, NONE, in_order, numbered
from stepscope.model.threshold import Threshold

LIMIT = Threshold(
    1022,
    "pending launches of a stream",
    "at so many, the one being launched included, its call waits for one to start: measured on an H200, and "
    "on an A100 1,700 launches return just after the start of the launch 1021 before them, none after that of"
    " an earlier one",
    ("decision 0016", "public/a100_lm2.7b_nvtx.sqlite", "tests/derive/host/test_launch_queue.py"),
)


class Entries(Struct, frozen=True):
    """Launches by stream: when the call began and ended, and when the first op of it started."""

    stream: I64
    call: I64
    called: I64
    returned: I64
    started: I64
    op: I64  # the first to start


def entries(data: RankData) -> Entries:
    """All launches of the rank. Ops without a launch record have no place in a queue."""
    ops = np.flatnonzero(data.launch != NONE)
    calls = data.calls.select("start_ns", "end_ns")
    order = in_order(data.stream[ops], data.launch[ops])  # stable, and ops are in start order: the first is first
    stream, call = data.stream[ops][order].astype(np.int64), data.launch[ops][order]
    first = np.r_[True, (stream[1:] != stream[:-1]) | (call[1:] != call[:-1])] if len(ops) else np.zeros(0, dtype=bool)
    stream, call = stream[first], call[first]
    return Entries(
        stream,
        call,
        calls["start_ns"].to_numpy()[call],
        calls["end_ns"].to_numpy()[call],
        data.start[ops][order][first],
        ops[order][first],
    )


def limit_of(data: RankData) -> int | None:
    """How many launches of a stream can be pending; null on AMD's GPUs (an MI300X has 1,840, and no call waits)."""
    launching, _ = numbered(data.calls["name"].to_numpy()[data.launch[data.launch != NONE]])
    return None if data.per_name(_of_hip)[launching].any() else LIMIT.count


def _of_hip(names: pl.Series) -> I64:
    return names.str.starts_with("hip").cast(pl.Int64).to_numpy()


def held_up(data: RankData) -> tuple[I64, I64]:
    """Launch calls that waited for room in the queue of their stream, and the op whose start made it.

    That op started during the call, and later than the shortest call of that name would have returned.
    """
    return data.once(_held_up)


def _held_up(data: RankData) -> tuple[I64, I64]:
    launched, limit = entries(data), limit_of(data)
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    if limit is None or len(launched.call) < limit:
        return nothing
    name = data.calls["name"].to_numpy()[launched.call]
    ids, which = numbered(name)
    shortest = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(shortest, which, launched.returned - launched.called)
    last, oldest = slice(limit - 1, None), slice(None, 1 - limit)  # entries lie stream by stream, in order of calls
    room = launched.started[oldest]
    waited = (launched.stream[last] == launched.stream[oldest]) & (room <= launched.returned[last])
    waited &= room > (launched.called + shortest[which])[last]
    call, op, room = launched.call[last][waited], launched.op[oldest][waited], room[waited]
    order = np.lexsort((room, call))  # a graph launches on several streams: the last that has room lets it go
    final = np.r_[call[order][1:] != call[order][:-1], True] if len(order) else np.empty(0, bool)
    return call[order][final], op[order][final]

"""Dependencies of a rank's ops after a change: waits of streams that are not made, communication on its own stream.

Moving communication off a stream that it shares with compute keeps what it came after; whoever the program made wait
for it, by an event recorded behind it, still does. Nothing else waits: that is what a stream of its own would give.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.graph.dependencies import dependencies
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.events import record_of
from stepscope.derive.replay.change import Change
from stepscope.intervals.arrays import I64, NONE

_NOTHING: I64 = np.empty(0, np.int64)


def rewired(data: RankData, change: Change) -> tuple[I64, I64] | None:
    """By op: the op before it on its stream, and behind the events that it waits for; None as recorded."""
    unwaited = change.of(change.stream_waits_dropped, data.rank)
    aside, lane = change.own_stream.get(data.rank, (_NOTHING, _NOTHING))
    if len(unwaited) == 0 and len(aside) == 0:
        return None
    syncs = data.syncs
    keep = np.ones(syncs.height, dtype=bool)
    keep[unwaited] = False
    syncs = syncs.filter(pl.Series(keep))
    stream = data.stream.astype(np.int64)
    if len(aside):
        stream, syncs = _apart(data, syncs, stream, aside, lane)
    made = dependencies(data, syncs, stream)
    return made.order, made.beside


def _apart(data: RankData, syncs: pl.DataFrame, stream: I64, aside: I64, lane: I64) -> tuple[I64, pl.DataFrame]:
    """Streams and syncs as if these ops had been put on streams of their own, beside the one they were on."""
    far = int(max(stream.max(), syncs["stream"].max() or 0)) + 1
    moved = stream.copy()
    moved[aside] += far * (1 + lane)
    at = data.launched_at[aside] - 1
    first = int(syncs["event"].max() or 0) + 1  # type: ignore[arg-type]
    events = np.arange(first, first + len(aside))
    like = {"start_ns": pl.Series(at), "event": pl.Series(events, dtype=pl.Int64)}
    # The op comes after what its old stream had been given: a record there, and a wait here.
    record = pl.DataFrame({**like, "kind": "record", "stream": stream[aside]})
    wait = pl.DataFrame({**like, "kind": "stream_wait", "stream": moved[aside]})
    kept = syncs.select("start_ns", "event", pl.col("kind").cast(pl.String), pl.col("stream").cast(pl.Int64))
    kept = kept.with_columns(pl.Series("stream", _records_follow(data, kept, stream, moved, aside)))
    order = ["start_ns", "event", "kind", "stream"]
    return moved, pl.concat([kept, record.select(order), wait.select(order)])


def _records_follow(data: RankData, syncs: pl.DataFrame, stream: I64, moved: I64, aside: I64) -> I64:
    """An event recorded right behind a moved op belongs to it, and goes to its stream.

    So does one that its own stream waits for: that says nothing of the ops of that stream, which are in order anyway,
    but where the program needs what was moved. It goes to the stream of the last op that was moved before it.
    """
    streams: I64 = syncs["stream"].to_numpy().astype(np.int64)
    records = (syncs["kind"] == "record").to_numpy()
    by_itself = np.zeros(len(streams), dtype=bool)
    by_itself[_waited_by_itself(syncs)] = True
    is_aside = np.zeros(len(stream), dtype=bool)
    is_aside[aside] = True
    launched, time = data.launched_at, syncs["start_ns"].to_numpy()
    for s in np.unique(stream[aside]).tolist():
        of_stream = np.flatnonzero(stream == s)
        of_stream = of_stream[np.argsort(launched[of_stream], kind="stable")]
        gone = of_stream[is_aside[of_stream]]
        rows = np.flatnonzero(records & (streams == s))
        last = np.searchsorted(launched[of_stream], time[rows], side="right") - 1
        behind = (last >= 0) & is_aside[of_stream[np.maximum(last, 0)]]
        before = np.searchsorted(launched[gone], time[rows], side="right") - 1
        follows = behind | (by_itself[rows] & (before >= 0))
        streams[rows[follows]] = moved[gone[np.maximum(before, 0)]][follows]
    return streams


def _waited_by_itself(syncs: pl.DataFrame) -> I64:
    """Rows of the records that the stream which made them waits for."""
    record = record_of(syncs)
    waits = np.flatnonzero((syncs["kind"] == "stream_wait").to_numpy() & (record != NONE))
    itself = syncs["stream"].gather(waits) == syncs["stream"].gather(record[waits])
    return np.unique(record[waits[itself.fill_null(False).to_numpy()]])

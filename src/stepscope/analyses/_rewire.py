"""Dependencies of a rank's ops after a change: waits of streams that are not made, communication on its own stream.

Moving communication off a stream that it shares with compute keeps what it came after; whoever the program made wait
for it, by an event recorded behind it, still does. Nothing else waits: that is what a stream of its own would give.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analyses._change import Change
from stepscope.analyses._depend import dependencies
from stepscope.analyses._rank import RankData
from stepscope.analyses._release import Releases

I64 = npt.NDArray[np.int64]


def rewired(data: RankData, found: Releases, change: Change) -> tuple[I64, I64]:
    """By op: the op before it on its stream, and behind the events that it waits for."""
    unwaited, aside = change.of(change.unwaited, data.rank), change.of(change.aside, data.rank)
    if len(unwaited) == 0 and len(aside) == 0:
        return found.stream_before, found.event_before
    syncs = data.syncs
    keep = np.ones(syncs.height, dtype=bool)
    keep[unwaited] = False
    syncs = syncs.filter(pl.Series(keep))
    stream = data.stream.astype(np.int64)
    if len(aside):
        stream, syncs = _apart(data, syncs, stream, aside)
    made = dependencies(data, syncs, stream)
    return made.stream, made.event


def _apart(data: RankData, syncs: pl.DataFrame, stream: I64, aside: I64) -> tuple[I64, pl.DataFrame]:
    """Streams and syncs as if these ops had been put on streams of their own, one beside each they were on."""
    far = int(max(stream.max(), syncs["stream"].max() or 0)) + 1
    moved = stream.copy()
    moved[aside] += far
    at = data.launched_at[aside] - 1
    first = int(syncs["event"].max() or 0) + 1  # type: ignore[arg-type]
    events = np.arange(first, first + len(aside))
    like = {"start_ns": pl.Series(at), "event": pl.Series(events, dtype=pl.Int64)}
    # The op comes after what its old stream had been given: a record there, and a wait here.
    record = pl.DataFrame({**like, "kind": "record", "stream": stream[aside]})
    wait = pl.DataFrame({**like, "kind": "stream_wait", "stream": moved[aside]})
    kept = syncs.select("start_ns", "event", pl.col("kind").cast(pl.String), pl.col("stream").cast(pl.Int64))
    kept = kept.with_columns(pl.Series("stream", _records_follow(data, kept, stream, aside, far)))
    order = ["start_ns", "event", "kind", "stream"]
    return moved, pl.concat([kept, record.select(order), wait.select(order)])


def _records_follow(data: RankData, syncs: pl.DataFrame, stream: I64, aside: I64, far: int) -> I64:
    """An event recorded right behind a moved op belongs to it."""
    found: I64 = syncs["stream"].fill_null(-1).to_numpy().copy()
    records = (syncs["kind"] == "record").to_numpy()
    is_aside = np.zeros(len(stream), dtype=bool)
    is_aside[aside] = True
    for s in np.unique(stream[aside]).tolist():
        mine = np.flatnonzero(stream == s)
        mine = mine[np.argsort(data.launched_at[mine], kind="stable")]
        rows = np.flatnonzero(records & (found == s))
        k = np.searchsorted(data.launched_at[mine], syncs["start_ns"].to_numpy()[rows], side="right") - 1
        behind = (k >= 0) & is_aside[mine[np.maximum(k, 0)]]
        found[rows[behind]] += far
    return found

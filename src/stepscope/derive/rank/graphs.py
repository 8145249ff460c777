"""What CUDA graphs do to every figure, said once: to be added to the notes of each answer."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.intervals.arrays import I64, NONE, Mask, numbered
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile


def graph_notes(profile: Profile) -> list[Note]:
    """Notes on graphs recorded whole, and on kernels that graph launches replayed. None where there are no graphs."""
    return list(profile.once(_graph_notes))


def _graph_notes(profile: Profile) -> list[Note]:
    return notes_of_counts([graph_counts(data) for data in ranks_of(profile)])


def graph_counts(data: RankData) -> tuple[int, int, int]:
    """Of one rank: graphs recorded as one op, ops that graph launches replayed, and those launches."""
    graphs = data.of_kind("graph")
    replayed = graph_launch(data)
    return int(graphs.sum()), int((replayed & ~graphs).sum()), len(np.unique(data.launch[replayed]))


def notes_of_counts(counts: Collection[tuple[int, int, int]]) -> list[Note]:
    """The notes for ranks with these `graph_counts`."""
    whole, replayed, launches = (sum(c) for c in zip(*counts, strict=True)) if counts else (0, 0, 0)
    notes = []
    if whole:
        notes.append(noted("graphs-whole", number=whole, capture_with=capture_with()))
    if replayed:
        notes.append(noted("graphs-replayed", number=replayed, launches=launches))
    return notes


def captures(data: RankData) -> tuple[I64, I64, I64]:
    """When a thread captured a CUDA graph: threads, starts and ends. What it launches meanwhile is kept, and not run.

    From a call that begins a capture to the next of the thread that ends one; to the end of the trace without such.
    """
    rows = np.flatnonzero(of_family(data, Family.CAPTURE))
    if not len(rows):
        return (np.empty(0, np.int64),) * 3
    calls = data.calls[rows].select(*(pl.col(c).cast(pl.Int64) for c in ("tid", "start_ns", "end_ns")), "name")
    begins = data.profile.names.gather(calls["name"]).str.contains("(?i)BeginCapture")
    calls = calls.with_columns(begins=begins).sort("tid", "start_ns")
    ending = pl.when(~pl.col("begins")).then("end_ns").backward_fill().over("tid")
    spans = calls.with_columns(ending.fill_null(data.host_span()[1]).alias("end_ns")).filter("begins")
    return spans["tid"].to_numpy(), spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()


def recordings(data: RankData) -> tuple[I64, I64]:
    """Captures, those of a thread as one that only builds graphs between them: starts and ends.

    XLA records the parts of a graph one after the other, each a capture of some microseconds.
    """
    tid, start, end = captures(data)
    if not len(start):
        return start, end
    order = np.lexsort((start, tid))
    tid, start, end = tid[order], start[order], end[order]
    of_thread, at = (data.calls[column].to_numpy() for column in ("tid", "start_ns"))
    works = np.zeros(len(at), dtype=bool)
    works[data.launch[data.launch != NONE]] = True
    begins = np.ones(len(start), dtype=bool)
    for thread in numbered(tid)[0].tolist():
        rows, working = np.flatnonzero(tid == thread), at[works & (of_thread == thread)]
        begins[rows[1:]] = np.searchsorted(working, start[rows[1:]]) > np.searchsorted(working, end[rows[:-1]])
    return start[begins], np.maximum.reduceat(end, np.flatnonzero(begins))


def graph_launch(data: RankData) -> Mask:
    """Ops that a graph launch started."""
    linked = data.launch != NONE
    replayed = np.zeros(len(linked), dtype=bool)
    if (launches := of_family(data, Family.GRAPH_LAUNCH)).any():
        replayed[linked] = launches[data.launch[linked]]
    return replayed

"""Tables that no file holds: windows, where ops came from, exposure, and communication across ranks.

They are what the commands rest on, by the same functions of `derive`: `window`, `exposed`, `collectives`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import polars as pl

from stepscope.derive.accounting.exposure import comm_ops
from stepscope.derive.comm.across import across
from stepscope.derive.comm.table import table_of
from stepscope.derive.rank.data import NO_STAGE, ranks_of
from stepscope.derive.rank.needs import need_communication, need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import marks_of
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import NONE
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Col

Made = tuple[pl.DataFrame, list[Note]]


@dataclass(frozen=True)
class Derived:
    """A derived table."""

    name: str
    doc: str
    columns: tuple[Col, ...]
    make: Callable[[Profile], Made]


@dataclass(frozen=True)
class _Every:
    """Every step of every rank, and every chunk where the trainer marks them; and which the commands look at."""

    by_rank: dict[int, list[tuple[Window, bool]]]
    notes: list[Note]

    @property
    def spans(self) -> Iterator[tuple[Window, bool]]:
        return chain.from_iterable(self.by_rank.values())


def _every(profile: Profile) -> _Every:
    need_ops(profile)
    specs = [(WindowSpec(index="all"), WindowSpec())]
    if any(marks_of(data).chunks is not None for data in ranks_of(profile)):
        specs.append((WindowSpec(unit="chunk", index="all"), WindowSpec(unit="chunk")))
    by_rank: dict[int, list[tuple[Window, bool]]] = {rank: [] for rank in profile.rank_ids()}
    notes: list[Note] = []
    for every, usual in specs:
        found, median = windows(profile, every, "step"), windows(profile, usual, "step")
        chosen = {(w.rank, w.index) for w in median.spans}
        for w in found.spans:
            by_rank[w.rank].append((w, (w.rank, w.index) in chosen))
        notes += found.notes
    return _Every(by_rank, list(dict.fromkeys(notes)))


_WINDOW = (
    Col("rank", "rank of the process"),
    Col("kind", "step or chunk; capture, where nothing marks steps"),
    Col("index", "which of the rank's, by start"),
)
_OP = Col("op", "the op: `nr` of `ops` of the same rank")
_INTEGERS = dict.fromkeys(("cpu_start_ns", "cpu_end_ns", "gpu_start_ns", "gpu_end_ns", "gpu_ns", "ops"), pl.Int64)
_KEY = {"rank": pl.Int32, "kind": pl.String, "index": pl.Int64}


def _windows(profile: Profile) -> Made:
    every = profile.once(_every)
    rows = [{**w.row(), "gpu_ns": w.gpu_ns, "ops": len(w.ops), "chosen": chosen} for w, chosen in every.spans]
    types = {**_KEY, "pid": pl.Int64, "count": pl.Int64, "label": pl.String, **_INTEGERS, "chosen": pl.Boolean}
    return pl.DataFrame(rows, schema={c.name: types[c.name] for c in _WINDOWS}), every.notes


def _window_ops(profile: Profile) -> Made:
    every = profile.once(_every)
    frames = [_keyed(w, pl.DataFrame({"op": w.ops})) for w, _ in every.spans]
    return pl.concat([pl.DataFrame(schema={**_KEY, "op": pl.Int64}), *frames]), every.notes


def _keyed(span: Window, frame: pl.DataFrame) -> pl.DataFrame:
    key = {"rank": span.rank, "kind": span.kind, "index": span.index}
    return frame.select(*(pl.lit(v, _KEY[k]).alias(k) for k, v in key.items()), pl.all())


def _origins(profile: Profile) -> Made:
    need_ops(profile)
    frames = []
    for data in ranks_of(profile):
        ops = np.arange(len(data.start), dtype=np.int64)
        linked = pl.Series(data.launch != NONE)
        calls = data.calls.select("tid", "name")
        calls = calls[np.maximum(data.launch, 0)] if calls.height else calls.clear(len(ops))
        frame = pl.DataFrame(
            {
                "rank": pl.Series([data.rank], dtype=pl.Int32).new_from_index(0, len(ops)),
                "op": ops,
                "launched_ns": data.launched_at,
                "tid": calls["tid"],
                "call": profile.names.gather(calls["name"]),
                "range": data.text_of(data.enclosing(ops)),
                "stage": data.stage_of(ops),
            }
        )
        columns = [pl.when(linked).then(pl.col(c)).alias(c) for c in ("launched_ns", "tid", "call")]
        frames.append(frame.with_columns(*columns, _stage()))
    return pl.concat(frames), []


def _stage() -> pl.Expr:
    """SQL has a word for what is in no stage: NULL."""
    return pl.when(pl.col("stage") != NO_STAGE).then(pl.col("stage")).alias("stage")


def _exposures(profile: Profile) -> Made:
    need_communication(profile)
    every = profile.once(_every)
    frames = []
    for data in ranks_of(profile):
        for span, chosen in every.by_rank[data.rank]:
            comm = comm_ops(data, span)
            frame = pl.DataFrame(
                {
                    "op": comm.ops,
                    "stage": data.stage_of(comm.ops),
                    "range": data.text_of(data.enclosing(comm.ops)),
                    "name": profile.names.gather(data.name[comm.ops]),
                    "stream": data.stream[comm.ops].astype(np.int64),
                    "start_ns": comm.start,
                    "end_ns": comm.end,
                    "dur_ns": comm.end - comm.start,
                    "exposed_ns": comm.exposed,
                    "barrier": comm.barrier,
                }
            )
            label = pl.lit(span.label, pl.String).alias("label")
            frames.append(_keyed(span, frame.with_columns(_stage(), label, pl.lit(chosen).alias("chosen"))))
    return pl.concat(frames).select(c.name for c in _EXPOSURES), every.notes


def _meetings(profile: Profile) -> Made:
    sides = across(profile)
    table = table_of(sides).with_columns(pl.col("group").alias("communicator"))
    return table.select(c.name for c in _MEETINGS), sides.notes


def _arrivals(profile: Profile) -> Made:
    meetings = across(profile)
    sides = meetings.matched.sides.select("meeting", "rank", pl.col("op").cast(pl.Int64))
    wait = np.maximum(meetings.last[meetings.meeting] - meetings.start, 0)
    times = {"start_ns": meetings.start, "end_ns": meetings.end, "wait_ns": wait}
    return sides.with_columns(pl.Series(name, values) for name, values in times.items()), meetings.notes


_WINDOWS = (
    *_WINDOW,
    Col("label", "text of its range"),
    Col("count", "how many the rank has"),
    Col("pid", "process id on its host"),
    Col("cpu_start_ns", "start on the host"),
    Col("cpu_end_ns", "end on the host"),
    Col("gpu_start_ns", "start on the GPU; null where nothing was launched in it"),
    Col("gpu_end_ns", "end on the GPU"),
    Col("gpu_ns", "length on the GPU"),
    Col("ops", "GPU ops launched in it"),
    Col("chosen", "the one that commands look at: of steps the median, of chunks too"),
)
_EXPOSURES = (
    *_WINDOW,
    Col("label", "text of the window's range"),
    Col("chosen", "in the window that commands look at"),
    _OP,
    Col("stage", "stage of the trainer's labels; null in none"),
    Col("range", "innermost range that launched it"),
    Col("name", "kernel name"),
    Col("stream", "stream id within the process"),
    Col("start_ns", "start on the GPU"),
    Col("end_ns", "end on the GPU"),
    Col("dur_ns", "duration"),
    Col("exposed_ns", "part of it during which the rank computes nothing"),
    Col("barrier", "in order with compute on its own stream"),
)
_MEETINGS = (
    Col("meeting", "its number, which `arrivals` refers to"),
    Col("communicator", "as the trace names it"),
    Col("op", "operation; send_recv is one transfer of a pair"),
    Col("seq", "ordinal in its communicator"),
    Col("ranks", "its ranks; from>to for a transfer"),
    Col("size", "how many ranks it has"),
    Col("present", "ranks that recorded it"),
    Col("bytes", "size as nccl-tests counts it; null where the trace does not say"),
    Col("start_ns", "last arrival, on the clock of the first host"),
    Col("transfer_ns", "least of (end − last arrival) over its ranks; null where one rank alone was recorded"),
    Col("max_wait_ns", "last arrival − first arrival"),
    Col("wait_ns", "waiting of all its ranks together"),
    Col("first_rank", "who arrived first"),
    Col("last_rank", "who arrived last"),
    Col("skew_ns", "last end − first end"),
    Col("algbw_gbps", "bytes / transfer"),
    Col("busbw_gbps", "algorithm bandwidth times the operation's factor"),
    Col("axis", "what it serves: tp, pp, dp, ep, cp; null where unknown"),
    Col("known_by", "how it was matched: payload, metadata, labels or order"),
)

TABLES = (
    Derived("windows", "Every step of every rank; every chunk too, where the trainer marks them.", _WINDOWS, _windows),
    Derived("window_ops", "Which ops are a window's: those launched in it.", (*_WINDOW, _OP), _window_ops),
    Derived(
        "origins",
        "Where on the host each op came from.",
        (
            Col("rank", "rank of the process"),
            _OP,
            Col("launched_ns", "start of the call that launched it; null where the trace has none"),
            Col("tid", "thread of that call"),
            Col("call", "name of that call"),
            Col("range", "innermost range that launched it"),
            Col("stage", "stage of the trainer's labels; null in none"),
        ),
        _origins,
    ),
    Derived("exposures", "Communication ops of every window, with what of them is exposed.", _EXPOSURES, _exposures),
    Derived("meetings", "The same communication on all its ranks, on one clock.", _MEETINGS, _meetings),
    Derived(
        "arrivals",
        "A rank's side of a meeting.",
        (
            Col("meeting", "`meeting` of `meetings`"),
            Col("rank", "rank of the process"),
            _OP,
            Col("start_ns", "its arrival, on the clock of the first host"),
            Col("end_ns", "its end, on the same clock"),
            Col("wait_ns", "from its arrival to the last one"),
        ),
        _arrivals,
    ),
)

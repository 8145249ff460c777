"""Events of all chunks into one frame per table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import compress
from operator import attrgetter

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.sources.kineto import comms, gpu, graph_edges, host, samples, tagged
from stepscope.sources.kineto.categories import Kind, Kinds
from stepscope.sources.kineto.decoding import decode_times
from stepscope.sources.kineto.events import Event
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import Rows
from stepscope.sources.kineto.times import exact_nanoseconds, nanoseconds, needs_text

_ts, _dur, _phase_and_category = attrgetter("ts"), attrgetter("dur"), attrgetter("ph", "cat")
#: What rows are collected under until the file has been read.
_Key = Kind | str
_OPS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_HOST = (Kind.CPU_OP, Kind.PYTHON, Kind.OTHER_HOST)
#: Torch's annotations of collectives: no table, but `comms` is completed from them.
MARKS = "nccl annotations"
#: Torch's own annotations: of a step, its batch and its optimizer. Torch 1.8 wrote them among the operators.
_ANNOTATIONS = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")
#: Kinds that last: an event of them without a duration says nothing.
_LASTING = np.array([Kind.KERNEL <= k <= Kind.SYNC for k in range(len(Kind))])
#: Kinds whose rows are left out where their times make no sense.
_TIMED = _LASTING | np.isin(np.arange(len(Kind)), (Kind.MEMORY, Kind.COUNTER))


class Collector:
    """Takes chunks of events, in file order."""

    def __init__(self) -> None:
        self.names = Names()
        self._frames: dict[_Key, list[pl.DataFrame]] = {}
        self.absurd = self.endless = 0
        self.unknown: Counter[str] = Counter()
        self.process_names: dict[int, str] = {}
        self.earliest_ns: int | None = None
        self._kinds = Kinds()
        self._graphs = False  # whether a node of a graph was seen

    def add(self, events: list[Event], text: bytes) -> None:
        """Take the events of one JSON array."""
        if not events:
            return
        kinds = self._kinds_of(events)
        kept = kinds != Kind.IGNORED  # flows are half of a trace: nothing is looked up of them
        if not kept.all():
            events, kinds = list(compress(events, kept.tolist())), kinds[kept]
        if not events:
            return
        if any(mark.encode() in text for mark in _ANNOTATIONS) and (kinds == Kind.CPU_OP).any():
            named = np.fromiter((e.name.startswith(_ANNOTATIONS) for e in events), np.bool_, len(events))
            kinds[named & (kinds == Kind.CPU_OP)] = Kind.RANGE
        ts, dur = (np.fromiter(map(of, events), np.float64, len(events)) for of in (_ts, _dur))
        endless = np.isnan(dur)
        lacking = _LASTING[kinds] & endless
        self.endless += int(lacking.sum())
        kinds[lacking] = Kind.IGNORED
        dur[endless] = 0.0
        start, end, sane = _times(ts, dur, text, kept, endless)
        broken = _TIMED[kinds] & ~sane
        self.absurd += int(broken.sum())
        kinds[broken] = Kind.IGNORED
        for kind in map(Kind, np.unique(kinds).tolist()):
            if kind is not Kind.IGNORED:
                chosen = kinds == kind
                self._take(kind, Rows(list(compress(events, chosen.tolist())), start[chosen], end[chosen]), text)
        if self._graphs and graph_edges.MARK in text:
            self._take_edges(text)

    def _kinds_of(self, events: list[Event]) -> NDArray[np.uint8]:
        if isinstance(events[0], Event):
            kinds = map(self._kinds.__getitem__, map(_phase_and_category, events))
        else:
            kinds = map(tagged.KINDS.__getitem__, map(type, events))
        return np.fromiter(kinds, np.uint8, len(events))

    def tables(self) -> dict[str, pl.DataFrame]:
        """All rows by table, in file order within each kind of event; tables without rows are left out."""
        frames_of = {
            "ops": [gpu.finish(f, _lower(kind)) for kind, f in self._joined(*_OPS)],
            "calls": [host.finish_calls(f, _lower(kind)) for kind, f in self._joined(Kind.RUNTIME, Kind.DRIVER)],
            "ranges": [host.finish_ranges(f) for _, f in self._joined(Kind.RANGE)],
            "host": [f for _, f in self._joined(*_HOST)],
            "counters": [f for _, f in self._joined(Kind.COUNTER, Kind.MEMORY)],
            "comms": [f for _, f in self._joined("kernel comms", "host comms")],
            "allocations": [samples.finish_allocations(f) for _, f in self._joined("allocations")],
            MARKS: [f for _, f in self._joined(MARKS)],
        }
        tables = {name: _concat(frames) for name, frames in frames_of.items() if frames}
        syncs = dict(self._joined(Kind.SYNC, Kind.EVENT_RECORD))
        if syncs:
            tables["syncs"] = samples.finish_syncs(
                syncs.get(Kind.SYNC), syncs.get(Kind.EVENT_RECORD), tables.get("calls")
            )
        for _, arrows in self._joined("graph edges"):
            idle = dict(self._joined(Kind.IDLE_NODE)).get(Kind.IDLE_NODE)
            tables["ops"], edges = graph_edges.edges_of(arrows, tables["ops"], idle)
            if edges is not None:
                tables["dependencies"] = gpu.finish_dependencies(edges, tables["ops"])
        for _, waits in self._joined("dependencies"):
            tables["dependencies"] = gpu.finish_dependencies(waits, tables["ops"])
        return tables

    def _joined(self, *keys: _Key) -> Iterator[tuple[_Key, pl.DataFrame]]:
        """The collected frames of each key, as one; keys without rows are left out."""
        for key in keys:
            if frames := self._frames.pop(key, []):
                yield key, _concat(frames)

    def _take(self, kind: Kind, rows: Rows, text: bytes) -> None:
        if kind in _OPS:
            self._put("dependencies", gpu.dependencies(rows))
        if kind is Kind.KERNEL:
            self._put(kind, gpu.kernels(rows, self.names))
            self._put("kernel comms", comms.on_kernels(rows))
        elif kind is Kind.MEMCPY:
            self._put(kind, gpu.copies(rows, self.names))
        elif kind is Kind.MEMSET:
            self._put(kind, gpu.memsets(rows, self.names))
        elif kind in (Kind.RUNTIME, Kind.DRIVER):
            self._put(kind, host.calls(rows, self.names))
        elif kind is Kind.RANGE:
            self._put(kind, host.ranges(rows, self.names))
            self._put(MARKS, comms.nccl_annotations(rows))
        elif kind in _HOST:
            self._put(kind, host.host(rows, kind, self.names))
            if kind is Kind.CPU_OP:
                self._put("host comms", comms.on_host(rows))
        elif kind is Kind.SYNC:
            self._put(kind, samples.syncs(rows))
        elif kind is Kind.EVENT_RECORD:
            self._put(kind, samples.event_records(rows))
        elif kind is Kind.MEMORY:
            self._put(kind, samples.memory(rows, self.names))
            self._put("allocations", samples.allocations(rows))
        elif kind is Kind.COUNTER:
            self._put(kind, samples.counters(rows, text, self.names))
        elif kind is Kind.METADATA:
            for event, args in zip(rows.events, rows.args, strict=True):
                if event.name == "process_name" and args.name and isinstance(event.pid, int):
                    self.process_names[event.pid] = args.name
        elif kind is Kind.IDLE_NODE:
            self._put(kind, graph_edges.idle_nodes(rows))
        elif kind is Kind.UNKNOWN:
            self.unknown.update(e.cat for e in rows.events)

    def _take_edges(self, text: bytes) -> None:
        """Arrows between nodes of graphs: flows, whose numbers nothing else needs."""
        events, chosen = graph_edges.flows(text)
        if not chosen.any():
            return
        ts = np.fromiter((e.ts for e in events), np.float64, len(events))
        at, _, _ = _times(ts[chosen], np.zeros(int(chosen.sum())), text, chosen, np.ones(int(chosen.sum()), np.bool_))
        self._put("graph edges", graph_edges.ends(list(compress(events, chosen.tolist())), at))

    def _put(self, key: _Key, frame: pl.DataFrame | None) -> None:
        if frame is not None and frame.height:
            self._graphs = self._graphs or (
                "graph_node" in frame.columns and frame["graph_node"].null_count() < frame.height
            )
            self._frames.setdefault(key, []).append(frame)
            first = int(frame["start_ns"].to_numpy().min())
            self.earliest_ns = first if self.earliest_ns is None else min(first, self.earliest_ns)


def _lower(key: _Key) -> str:
    return key if isinstance(key, str) else key.name.lower()


def _concat(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")


def _times(ts: F64, dur: F64, text: bytes, kept: Mask, endless: Mask) -> tuple[I64, I64, Mask]:
    """Times of the `kept` events of a chunk; those that are `endless` have no duration of their own."""
    if needs_text(ts, text):
        pairs = decode_times(text)
        if len(pairs) == len(kept):
            written = compress(pairs, kept.tolist())
            return exact_nanoseconds([(at, 0 if no else d) for (at, d), no in zip(written, endless, strict=True)])
    return nanoseconds(ts, dur)

"""Events of all chunks into one frame per table."""

from __future__ import annotations

from collections import Counter
from itertools import compress
from operator import attrgetter

import numpy as np
import polars as pl

from stepscope.sources.kineto import gpu, host
from stepscope.sources.kineto.categories import Classifier, Kind
from stepscope.sources.kineto.decoding import decode_times
from stepscope.sources.kineto.events import Event
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import Rows
from stepscope.sources.kineto.times import Bools, Ints, exact_nanoseconds, nanoseconds, needs_text

_ts, _dur = attrgetter("ts"), attrgetter("dur")
#: Kinds with a length, whose rows are dropped where it makes no sense.
_TIMED = np.array([k in range(Kind.KERNEL, Kind.SYNC + 1) for k in range(len(Kind))])


class Collector:
    """Takes chunks of events, in file order."""

    def __init__(self) -> None:
        self.names = Names()
        self.frames: dict[str, list[pl.DataFrame]] = {}
        self.absurd = 0
        self.unknown: Counter[str] = Counter()
        self.process_names: dict[int, str] = {}
        self.earliest_ns: int | None = None
        self._classifier = Classifier()

    def add(self, events: list[Event], text: bytes) -> None:
        """Take the events of one JSON array."""
        if not events:
            return
        complete, other = self._classifier.complete, self._classifier.other
        kinds = np.fromiter(
            (complete(e.cat) if e.ph == "X" else other(e.ph, e.name) for e in events), np.uint8, len(events)
        )
        start, end, sane = _times(events, text)
        broken = _TIMED[kinds] & ~sane
        self.absurd += int(broken.sum())
        kinds[broken] = Kind.IGNORED
        for kind in map(Kind, np.unique(kinds).tolist()):
            if kind is not Kind.IGNORED:
                chosen = kinds == kind
                self._take(kind, Rows(list(compress(events, chosen.tolist())), start[chosen], end[chosen]), text)

    def table(self, name: str) -> pl.DataFrame | None:
        """All rows of a table, in file order; None where there are none."""
        frames = self.frames.pop(name, [])
        return pl.concat(frames, how="diagonal") if frames else None

    def _take(self, kind: Kind, rows: Rows, text: bytes) -> None:
        if kind in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET):
            make = {Kind.KERNEL: gpu.kernels, Kind.MEMCPY: gpu.copies, Kind.MEMSET: gpu.memsets}[kind]
            self._put("ops", make(rows, self.names))
        elif kind in (Kind.RUNTIME, Kind.DRIVER):
            self._put("calls", host.calls(rows, kind, self.names))
        elif kind is Kind.RANGE:
            self._put("ranges", host.ranges(rows, self.names))
        elif kind in (Kind.CPU_OP, Kind.PYTHON, Kind.OTHER_HOST):
            self._put("host", host.host(rows, kind, self.names))
        elif kind is Kind.METADATA:
            for event, args in zip(rows.events, rows.args, strict=True):
                if event.name == "process_name" and args.name and isinstance(event.pid, int):
                    self.process_names[event.pid] = args.name
        elif kind is Kind.UNKNOWN:
            self.unknown.update(e.cat for e in rows.events)

    def _put(self, table: str, frame: pl.DataFrame) -> None:
        self.frames.setdefault(table, []).append(frame)
        first = int(frame["start_ns"].to_numpy().min())
        self.earliest_ns = first if self.earliest_ns is None else min(first, self.earliest_ns)


def _times(events: list[Event], text: bytes) -> tuple[Ints, Ints, Bools]:
    ts = np.fromiter(map(_ts, events), np.float64, len(events))
    if needs_text(ts, text):
        pairs = decode_times(text)
        if len(pairs) == len(events):
            return exact_nanoseconds(pairs)
    return nanoseconds(ts, np.fromiter(map(_dur, events), np.float64, len(events)))

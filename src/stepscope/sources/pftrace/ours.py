"""An export of ours: every event is a row of a table, its arguments are the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.columns import Column
from stepscope.model.exported import TITLES, Header, arguments, ends
from stepscope.sources.exported.source import ExportedSource, Tables
from stepscope.sources.pftrace.trace import ARGUMENTS, CATEGORIES, NAMES, VALUES, Trace, read, slices, whole
from stepscope.sources.pftrace.wire import Fields, fields


def source_of(path: Path, header: Header) -> ExportedSource:
    return ExportedSource(path, header, lambda: tables_of(path, header))


def tables_of(path: Path, header: Header) -> Tables:
    """The tables of a trace of ours."""
    with whole(path):
        return _tables_of(path, header)


def _tables_of(path: Path, header: Header) -> Tables:
    told = _Arguments()
    trace = read(path, told.visit)
    events = trace.events
    assert events is not None
    process = _processes(trace, header)
    begin, end = slices(events)
    category = {text: number for number, text in trace.texts.get(CATEGORIES, {}).items()}
    tables: dict[str, pl.DataFrame] = {}
    for table in TITLES:
        number = category.get(table)
        if number is None:
            continue
        if ends(table):
            mine = events.category[begin] == number
            rows, closing = begin[mine], end[mine]
        else:
            rows = closing = np.flatnonzero(events.category == number)
        order = np.argsort(rows)
        rows, closing = rows[order], closing[order]
        columns = [
            pl.Series("proc", process(events.track[rows])),
            pl.Series("start_ns", events.time[rows] + header.origin_ns),
            _texts(trace.texts.get(NAMES, {}), events.name[rows]).alias(TITLES[table]),
        ]
        if ends(table):
            columns.append(pl.Series("end_ns", events.time[closing] + header.origin_ns))
        if table == "counters":
            columns.append(pl.Series("value", events.value[rows]))
        columns += told.of(
            trace, rows, (c for c in arguments(table) if not (table == "counters" and c.name == "value"))
        )
        tables[table] = pl.DataFrame(columns)
    return tables


class _Arguments:
    """All arguments of all events, by the number of their name: rows of events, and values as they are written."""

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[I64, I64]]] = {}
        self._texts: dict[int, str] = {}

    def visit(self, trace: Trace, packet: Fields) -> None:
        parts = fields(trace.buffer, packet.start, packet.end)
        count = len(packet.of)
        name = parts.last(1, count, 0)
        value = np.zeros(count, np.int64)
        for number in (2, 3, 4, 5, 17):
            mine = parts.number == number
            value[parts.of[mine]] = parts.value[mine].view(np.int64)
        for number in np.unique(name).tolist():
            mine = np.flatnonzero(name == number)
            order = np.argsort(packet.of[mine])
            self._parts.setdefault(number, []).append((packet.of[mine][order], value[mine][order]))

    def of(self, trace: Trace, rows: I64, columns: Iterable[Column]) -> list[pl.Series]:
        """The columns of these events; null where an event does not have one. `rows` are ascending."""
        numbers = {text: number for number, text in trace.texts.get(ARGUMENTS, {}).items()}
        self._texts = trace.texts.get(VALUES, {})
        made = []
        for column in columns:
            parts = self._parts.get(numbers.get(column.name, -1), [])
            if not parts or not len(rows):
                continue
            event, value = (np.concatenate([part[k] for part in parts]) for k in range(2))
            place = np.searchsorted(rows, event)
            there = (place < len(rows)) & (rows[np.minimum(place, len(rows) - 1)] == event)
            place, value = place[there], value[there]
            if len(place):
                given = np.zeros(len(rows), dtype=bool)
                given[place] = True
                made.append(self._column(column, value, place, given))
        return made

    def _column(self, column: Column, value: I64, place: I64, mask: Mask) -> pl.Series:
        if column.name_id or isinstance(column.dtype, pl.Enum):
            numbers = np.zeros(len(mask), np.int64)
            numbers[place] = value
            values = _texts(self._texts, numbers)
        elif column.dtype in (pl.Float64, pl.Float32):
            doubles: F64 = np.zeros(len(mask), np.float64)
            doubles[place] = value.view(np.float64)
            values = pl.Series(doubles)
        else:
            whole = np.zeros(len(mask), np.int64)
            whole[place] = value
            values = pl.Series(whole) if column.dtype != pl.Boolean else pl.Series(whole != 0)
        frame = pl.DataFrame({"values": values, "known": mask})
        return frame.select(pl.when("known").then("values").alias(column.name)).to_series()


def _texts(texts: dict[int, str], numbers: I64) -> pl.Series:
    """Texts by their numbers; null for a number that none has."""
    number_of = np.zeros(max([0, *texts]) + 2, np.uint32)
    values: list[str | None] = [None]
    for number, text in texts.items():
        number_of[number] = len(values)
        values.append(text)
    at = number_of[np.clip(numbers, 0, len(number_of) - 1)]
    return pl.Series(values, dtype=pl.String).gather(at)


def _processes(trace: Trace, header: Header) -> Callable[[I64], npt.NDArray[np.int32]]:
    """From tracks to the place of their rank in the header. A rank's group is a process: its number, and one."""
    place = {row["rank"]: i for i, row in enumerate(header.processes)}
    of: dict[int, int] = {}
    for uuid in trace.tracks:
        up = uuid
        while up in trace.tracks and trace.tracks[up].pid is None and trace.tracks[up].parent:
            up = trace.tracks[up].parent
        pid = trace.tracks[up].pid if up in trace.tracks else None
        of[uuid] = place.get(pid - 1, -1) if pid is not None else -1
    process_of = np.full(max([0, *of]) + 1, -1, np.int32)
    for uuid, proc in of.items():
        process_of[uuid] = proc

    return lambda track: process_of[np.clip(track, 0, len(process_of) - 1)]

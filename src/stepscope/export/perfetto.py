"""Perfetto's own format: a stream of protobuf packets, gzip-compressed, as torch.profiler writes it too.

A track may hold what overlaps nothing or lies in one another; lanes take care of the rest, which Chrome JSON cannot.
Numbers of fields are those of perfetto_trace.proto.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope import progress
from stepscope.export import wire
from stepscope.export.content import FLOWS
from stepscope.export.events import OWN, Layer
from stepscope.export.timeline import Timeline
from stepscope.export.tracks import Track
from stepscope.model.exported import MARK

_PACKET = 1
_TIMESTAMP, _SEQUENCE, _FLAGS, _EVENT, _INTERNED, _TRACK_DESCRIPTOR = 8, 10, 13, 11, 12, 60
#: Flags: what was interned before is void; this packet needs what was interned.
_CLEARED, _NEEDS = 1, 2
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CATEGORY_NAMES, _EVENT_NAMES, _ARGUMENT_NAMES, _ARGUMENT_TEXTS = 1, 2, 3, 29
_EXPLICIT_ORDER = 3
#: Speed of gzip: the fastest level makes these files a tenth of their size; higher ones gain little.
_LEVEL = 1
#: Texts of one packet: viewers read packet by packet.
_TEXTS_AT_ONCE = 4096


def write(timeline: Timeline, path: Path) -> None:
    """The timeline as a file."""
    squeeze = zlib.compressobj(_LEVEL, wbits=31)
    with path.open("wb") as file:
        for block in packets(timeline):
            file.write(squeeze.compress(block))
        file.write(squeeze.flush())


def packets(timeline: Timeline) -> Iterator[bytes]:
    """The file in blocks, before compression: who it is of, where things are drawn, their texts, and the events."""
    named = [c for layer in timeline.layers for c in layer.events.columns if c not in OWN]
    names = {name: iid for iid, name in enumerate(dict.fromkeys(named), 1)}
    categories = {table: iid for iid, table in enumerate(dict.fromkeys(layer.table for layer in timeline.layers), 1)}
    origin = min(timeline.first, 0)
    yield _descriptor(_header(timeline, origin))
    # Hints on the root: groups at the top, ranks among them, are in the order of their numbers.
    yield _descriptor(wire.number(1, 0) + wire.number(11, _EXPLICIT_ORDER) + wire.number(19, 1))
    for track in timeline.tracks:
        yield _descriptor(_track(track))
    yield from _interned(timeline, names, categories)
    done = 0
    for layer in timeline.layers:
        for events in layer.chunks():
            yield _encoded(layer, _since(events, origin), names, categories[layer.table])
            done += events.height
            progress.report("writing events", done, timeline.count)


def _since(events: pl.DataFrame, origin: int) -> pl.DataFrame:
    """Times are unsigned here: a clock that was aligned may have gone below zero."""
    return events.with_columns(pl.col("start", "end") - origin) if origin else events


def _packet(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return wire.varint(_PACKET << 3 | 2) + wire.varint(len(body)) + body


def _nested(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return wire.varint(field << 3 | 2) + wire.varint(len(body)) + body


def _descriptor(body: bytes) -> bytes:
    return _packet(_nested(_TRACK_DESCRIPTOR, body), wire.number(_SEQUENCE, 1))


def _header(timeline: Timeline, origin: int) -> bytes:
    """An empty track that says what the file is: viewers show its name at most."""
    description = wire.text(14, replace(timeline.header, origin_ns=origin).text())
    return wire.number(1, len(timeline.tracks) + 1) + wire.text(2, MARK) + description


def _track(track: Track) -> bytes:
    body = wire.number(1, track.uuid)
    if track.rank is not None:
        # Numbers of processes collide across hosts, and 0 is the idle one: a rank has its own.
        body += _nested(3, wire.number(1, track.rank + 1), wire.text(6, track.name))
    else:
        body += wire.text(2, track.name)
    if track.parent is not None:
        body += wire.number(5, track.parent)
    body += wire.number(12, track.order)
    if track.counter:
        body += _nested(8)
    return body + wire.number(11, _EXPLICIT_ORDER)


def _interned(timeline: Timeline, names: dict[str, int], categories: dict[str, int]) -> Iterator[bytes]:
    """The texts, each once: later packets say only their numbers, one above those of the timeline."""
    yield _packet(
        wire.number(_SEQUENCE, 1),
        wire.number(_FLAGS, _CLEARED),
        _nested(
            _INTERNED,
            *(_entry(_CATEGORY_NAMES, iid, text) for text, iid in categories.items()),
            *(_entry(_ARGUMENT_NAMES, iid, text) for text, iid in names.items()),
        ),
    )
    titles, arguments = _used(timeline)
    for field, used in ((_EVENT_NAMES, titles), (_ARGUMENT_TEXTS, arguments)):
        for first in range(0, len(used), _TEXTS_AT_ONCE):
            entries = (_entry(field, i + 1, timeline.texts[i]) for i in used[first : first + _TEXTS_AT_ONCE])
            yield _packet(wire.number(_SEQUENCE, 1), wire.number(_FLAGS, _NEEDS), _nested(_INTERNED, *entries))


def _entry(field: int, iid: int, text: str) -> bytes:
    return _nested(field, wire.number(1, iid), wire.text(2, text))


def _used(timeline: Timeline) -> tuple[list[int], list[int]]:
    """Texts that are titles, and those that are arguments."""
    titles, arguments = (np.zeros(len(timeline.texts), dtype=bool) for _ in range(2))
    for layer in timeline.layers:
        titles[layer.events["title"].to_numpy()] = True
        for name in layer.texts:
            arguments[layer.events[name].drop_nulls().to_numpy()] = True
    return np.flatnonzero(titles).tolist(), np.flatnonzero(arguments).tolist()


def _encoded(layer: Layer, events: pl.DataFrame, names: dict[str, int], category: int) -> bytes:
    """The packets of each event: where it begins and where it ends, or the one of a moment."""
    track = wire.numbers(11, _ints(events["track"]))
    counter = layer.table == "counters"
    kind = _COUNTER if counter else _BEGIN if layer.lasting else _INSTANT
    body: list[wire.Part] = [wire.number(9, kind), *track, wire.number(3, category)]
    body += wire.numbers(10, _ints(events["title"]) + 1)
    for flow in FLOWS:
        if flow in events.columns:
            body += _where(events[flow], wire.fixed(47, _ints(events[flow]).astype(np.uint64)))
    for name in events.columns:
        if counter and name == "value":
            body += wire.fixed(44, events[name].to_numpy())
        elif name not in OWN:
            value = [wire.number(1, names[name]), *_value(events[name], name in layer.texts)]
            body += _where(events[name], wire.message(4, value))
    parts = _timed(events["start"], wire.message(_EVENT, body))
    if layer.lasting:
        parts += _timed(events["end"], wire.message(_EVENT, [wire.number(9, _END), *track]))
    return wire.rows(parts, events.height)


def _where(column: pl.Series, parts: list[wire.Part]) -> list[wire.Part]:
    """The parts, for the rows that have a value there."""
    return [wire.Some(parts, column.is_not_null().to_numpy())] if column.null_count() else parts


def _timed(at: pl.Series, event: list[wire.Part]) -> list[wire.Part]:
    shared = wire.number(_SEQUENCE, 1) + wire.number(_FLAGS, _NEEDS)
    return wire.message(_PACKET, [*wire.numbers(_TIMESTAMP, _ints(at)), shared, *event])


def _value(column: pl.Series, text: bool) -> list[wire.Part]:
    if text:
        return wire.numbers(17, _ints(column) + 1)
    if column.dtype == pl.Boolean:
        return wire.numbers(2, _ints(column))
    if column.dtype.is_float():
        return wire.fixed(5, column.cast(pl.Float64).fill_null(0.0).to_numpy())
    return wire.numbers(4, _ints(column))


def _ints(column: pl.Series) -> npt.NDArray[np.int64]:
    return column.cast(pl.Int64).fill_null(0).to_numpy()

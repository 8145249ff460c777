"""A Perfetto trace, decoded: its tracks and texts, its slices with where their arguments are, its GPU's work.

Numbers of fields are those of perfetto_trace.proto. Only what stepscope and torch.profiler write is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.intervals.arrays import F64, I64
from stepscope.sources.kineto.bytestream import ByteStream
from stepscope.sources.pftrace.wire import LENGTH, Buffer, Fields, Malformed, fields, frames

_TIMESTAMP, _EVENT, _INTERNED, _FLAGS, _COUNTERS, _STAGE, _DESCRIPTOR, _PACKED = 8, 11, 12, 13, 52, 53, 60, 50
_CLEARED = 1
#: Texts that are told once: field of InternedData -> what is numbered.
CATEGORIES, NAMES, ARGUMENTS, VALUES = 1, 2, 3, 29
GPU_SPECIFICATIONS, GPU_COUNTERS, KERNEL_ARGUMENTS = 24, 47, 1001
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_AGAIN = "record or copy it again"
#: Packets that are parsed at once.
_AT_ONCE = 1 << 16
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Track:
    """A place for events, and whose it is."""

    name: str
    parent: int
    pid: int | None = None
    tid: int | None = None
    description: str = ""


@dataclass(frozen=True)
class Events:
    """Track events, in file order."""

    time: I64
    kind: I64
    track: I64
    name: I64
    category: I64
    value: F64  # of a counter


@dataclass
class Trace:
    """All of a file."""

    path: Path
    buffer: Buffer
    tracks: dict[int, Track] = field(default_factory=dict)
    texts: dict[int, dict[int, str]] = field(default_factory=dict)
    #: time of the first packet: torch states there where its times begin
    begins: int = 0
    events: Events | None = None
    #: messages of the GPU: packets' times, and where the message is
    stages: tuple[I64, I64, I64] | None = None
    samples: tuple[I64, I64, I64] | None = None
    #: interned messages that are more than a text: field -> (start, end) of each
    specifications: dict[int, tuple[I64, I64]] = field(default_factory=dict)

    def text(self, kind: int, number: int) -> str:
        return self.texts.get(kind, {}).get(number, "")


#: Given where arguments are (`of` is the row of their event), keeps what it needs of them.
Visit = Callable[[Trace, Fields], None]


def read(path: Path, visit: Visit) -> Trace:
    """Decode the file, some packets at a time: places of all arguments would take many times the file."""
    with ByteStream(path) as stream:
        parts = []
        while part := stream.read(1 << 24):
            parts.append(part)
    trace = Trace(path, Buffer(b"".join(parts)))
    with whole(path):
        _decode(trace, visit)
    return trace


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Refuse the trace where bytes are not messages: those within messages are decoded when they are asked for."""
    try:
        yield
    except Malformed as flaw:
        raise BadInput(f"{path}: not a whole Perfetto trace (broken at byte {flaw.at})", _AGAIN) from None


def _decode(trace: Trace, visit: Visit) -> None:
    start, end = frames(trace.buffer)
    events: list[Events] = []
    stages, samples = ([(_NONE, _NONE, _NONE)] for _ in range(2))
    cleared = done = 0
    for first in range(0, len(start), _AT_ONCE):
        count = len(start[first : first + _AT_ONCE])
        packet = fields(trace.buffer, start[first : first + count], end[first : first + count])
        if (packet.number == _PACKED).any():
            raise BadInput(
                f"{trace.path}: its packets are compressed one by one", "write it without compression, or as gzip"
            )
        cleared += int(((packet.last(_FLAGS, count, 0) & _CLEARED) > 0).sum())
        time = packet.last(_TIMESTAMP, count, 0)
        trace.begins = trace.begins if first else int(time[0])
        _descriptors(trace, packet.numbered(_DESCRIPTOR))
        _interned(trace, packet.numbered(_INTERNED))
        event = packet.numbered(_EVENT).by_message()
        made, arguments = _events(trace.buffer, time, event)
        visit(trace, replace(arguments, of=arguments.of + done))
        events.append(made)
        done += len(event.of)
        for number, kept in ((_STAGE, stages), (_COUNTERS, samples)):
            mine = packet.numbered(number).by_message()
            kept.append((time[mine.of], mine.start, mine.end))
        progress.report(f"reading {trace.path.name}", first + count, len(start))
    if cleared > 1:
        raise BadInput(
            f"{trace.path}: holds several traces, one behind the other", "give the trace of each rank as a file"
        )
    names = Events.__dataclass_fields__
    trace.events = Events(*(np.concatenate([_NONE, *(getattr(e, n) for e in events)]) for n in names))
    trace.stages = (*(np.concatenate([s[k] for s in stages]) for k in range(3)),)  # type: ignore[assignment]
    trace.samples = (*(np.concatenate([s[k] for s in samples]) for k in range(3)),)  # type: ignore[assignment]


def _descriptors(trace: Trace, packet: Fields) -> None:
    """The tracks. There are few: one by one."""
    parts = fields(trace.buffer, packet.start, packet.end)
    for row in range(len(packet.of)):
        mine = parts.where(parts.of == row)
        one = {int(n): i for i, n in enumerate(mine.number.tolist())}
        uuid = int(mine.value[one[1]]) if 1 in one else 0
        trace.tracks[uuid] = Track(
            _text(trace, mine, one, 2) or _text(trace, mine, one, 10),
            int(mine.value[one[5]]) if 5 in one else 0,
            *_owner(trace, mine, one),
            description=_text(trace, mine, one, 14),
        )


def _owner(trace: Trace, mine: Fields, one: dict[int, int]) -> tuple[int | None, int | None]:
    """Process and thread, where the track is one of them."""
    for number in (3, 4):
        if number in one:
            at = slice(one[number], one[number] + 1)
            inner = fields(trace.buffer, mine.start[at], mine.end[at])
            ids = inner.last(1, 1), inner.last(2, 1)
            return int(ids[0][0]), int(ids[1][0]) if number == 4 else None
    return None, None


def _text(trace: Trace, mine: Fields, one: dict[int, int], number: int) -> str:
    return trace.buffer.text(int(mine.start[one[number]]), int(mine.end[one[number]])) if number in one else ""


def _interned(trace: Trace, packet: Fields) -> None:
    """Texts by their numbers: distinct ones only, so one by one."""
    parts = fields(trace.buffer, packet.start, packet.end)
    for kind in np.unique(parts.number).tolist():
        mine = parts.numbered(kind)
        specified = trace.specifications.get(kind, (_NONE, _NONE))
        trace.specifications[kind] = (np.append(specified[0], mine.start), np.append(specified[1], mine.end))
        entries = fields(trace.buffer, mine.start, mine.end)
        number = entries.last(1, len(mine.of), 0)
        texts = entries.numbered(2)
        texts = texts.where(texts.wire == LENGTH)
        trace.texts.setdefault(kind, {}).update(
            (int(number[of]), trace.buffer.text(start, end))
            for of, start, end in zip(texts.of.tolist(), texts.start.tolist(), texts.end.tolist(), strict=True)
        )


def _events(buffer: Buffer, time: I64, event: Fields) -> tuple[Events, Fields]:
    """The events of some packets, and where their arguments are."""
    parts = fields(buffer, event.start, event.end)
    count = len(event.of)
    value = parts.last(44, count, 0).view(np.uint64)
    whole = parts.numbered(30)
    value[whole.of] = whole.value.view(np.int64).astype(np.float64).view(np.uint64)
    made = Events(
        time[event.of],
        parts.last(9, count, 0),
        parts.last(11, count, 0),
        parts.last(10, count, 0),
        parts.last(3, count, 0),
        value.view(np.float64),
    )
    return made, parts.numbered(4)


def slices(events: Events) -> tuple[I64, I64]:
    """Which event begins each slice, and which ends it.

    Both torch and we write slices whole, whatever they overlap: the k-th end is that of the k-th begin. Where somebody
    has sorted the events by time, they pair on a stack, as in every viewer.
    """
    begin, end = np.flatnonzero(events.kind == BEGIN), np.flatnonzero(events.kind == END)
    if len(begin) == len(end) and not _sorted(events):
        fits = (events.track[begin] == events.track[end]) & (events.time[begin] <= events.time[end])
        if fits.all():
            return begin, end
    return _stacked(events)


def _sorted(events: Events) -> bool:
    """Whether the events of every track are in order of time."""
    order = np.argsort(events.track, kind="stable")
    track, time = events.track[order], events.time[order]
    return bool(((time[1:] >= time[:-1]) | (track[1:] != track[:-1])).all())


def _stacked(events: Events) -> tuple[I64, I64]:
    """Begins and ends that meet on the stack of their track; what has no counterpart is left out.

    Of the events at one depth of a track, a begin and the end after it are one slice: sorted by track and depth, they
    stand side by side.
    """
    mine = np.flatnonzero((events.kind == BEGIN) | (events.kind == END))
    order = mine[np.lexsort((mine, events.time[mine], events.track[mine]))]
    begins = events.kind[order] == BEGIN
    track = events.track[order]
    step = np.where(begins, 1, -1)
    level = np.cumsum(step)
    first = np.flatnonzero(np.r_[True, track[1:] != track[:-1]]) if len(order) else np.empty(0, np.int64)
    base = np.repeat((level - step)[first], np.diff(np.append(first, len(order))))
    depth = np.where(begins, level, level + 1) - base
    by_depth = np.lexsort((np.arange(len(order)), depth, track))
    one, other = by_depth[:-1], by_depth[1:]
    paired = begins[one] & ~begins[other] & (track[one] == track[other]) & (depth[one] == depth[other])
    return order[one[paired]], order[other[paired]]

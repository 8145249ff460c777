"""What a snapshot holds, as columns: events of the allocator, blocks of its segments, stacks and annotations.

A batch of events becomes arrays at once and is then forgotten. Stacks are interned: the same frames in the same order
are one stack, however often the file has them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Any

from stepscope.sources.pickled.values import Fields, Items, TooMuch

#: What the allocator records, by the names that torch has used for it; `snapshot` marks the moment of the dump.
ACTIONS = {
    "alloc": "alloc",
    "free_requested": "free_requested",
    "free_completed": "free",
    "free": "free",
    "segment_alloc": "segment_alloc",
    "segment_free": "segment_free",
    "segment_map": "segment_map",
    "segment_unmap": "segment_unmap",
    "oom": "oom",
    "snapshot": "snapshot",
}
CODES = {action: code for code, action in enumerate(dict.fromkeys(ACTIONS.values()))}
STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1, "inactive": 2}
#: A number that the file does not give.
UNKNOWN = -1
_MOST = 1 << 62
#: Microseconds since 1970, until 2255: nanoseconds of it fit 64 bits.
_LAST_TIME = 9 * 10**15
#: Frames of all distinct stacks together.
_FRAMES = 1 << 25


class Frame:
    """One line of a stack; `id` numbers the distinct ones."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id


class Stack:
    """Frames, innermost first."""

    __slots__ = ("frames", "id")

    def __init__(self, id: int, frames: tuple[int, ...]) -> None:
        self.id, self.frames = id, frames


class Rows:
    """Stands for a list whose items were taken: which rows of a table they are, as (first, count)."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[tuple[int, int]] = []


class Collector:
    """The sink of a snapshot's pickle. Columns are arrays of 64-bit numbers."""

    skip = None

    def __init__(self) -> None:
        self.events = {c: array("q") for c in ("time", "action", "stream", "address", "bytes", "stack", "free")}
        self.blocks = {c: array("q") for c in ("address", "bytes", "requested", "state", "stack")}
        self.segments = {c: array("q") for c in ("address", "bytes", "stream", "device", "small", "expandable")}
        #: (first row of its blocks, count, segment)
        self.placed: list[tuple[int, int, int]] = []
        #: by device: the rows of its events
        self.devices: list[list[tuple[int, int]]] = []
        self.annotations: list[dict[str, Any]] = []
        self.frames: dict[tuple[str, str, int], Frame] = {}
        self.stacks: dict[tuple[int, ...], Stack] = {}
        self.unknown: Counter[str] = Counter()
        self.odd = self._depth = 0

    # -- the sink ------------------------------------------------------------------------------------------------------

    def fields(self, found: Fields) -> object | None:
        if "filename" not in found or "name" not in found:
            return None
        key = (str(found["name"]), str(found["filename"]), _number(found.get("line"), 0))
        return self.frames.setdefault(key, Frame(len(self.frames)))

    def items(self, into: object, batch: list[Any]) -> object | None:
        first = batch[0] if batch else None
        if type(first) is Frame:
            return self._stack(into, batch)
        if type(first) is Fields:
            kind = _kind(first)
            if kind == "annotation":
                self.annotations += [dict(a) for a in batch if isinstance(a, Fields)]
                return self._rows(into, kind)
            if kind is not None:
                rows = self._rows(into, kind)
                began = len(self._table(kind))
                taken = [item for item in batch if type(item) is Fields]
                self.odd += len(batch) - len(taken)
                getattr(self, f"_take_{kind}")(taken)
                rows.parts.append((began, len(taken)))
                return rows
        if isinstance(into, Items) and any(isinstance(item, Rows) and item.kind == "event" for item in batch):
            # `device_traces`: one list of events per device, of which some may be empty.
            self.devices += [item.parts if isinstance(item, Rows) else [] for item in batch]
        return None

    def seen(self, items: list[Any]) -> object | None:
        return self._stack(None, items) if all(type(item) is Frame for item in items) else None

    def _table(self, kind: str) -> array[int]:
        return {"event": self.events["time"], "block": self.blocks["bytes"], "segment": self.segments["bytes"]}[kind]

    def _rows(self, into: object, kind: str) -> Rows:
        return into if isinstance(into, Rows) else Rows(kind)

    def _stack(self, into: object, batch: list[Any]) -> Stack:
        before = into.frames if isinstance(into, Stack) else ()
        ids = before + tuple([frame.id for frame in batch])
        stack = self.stacks.get(ids)
        if stack is None:
            stack = self.stacks[ids] = Stack(len(self.stacks), ids)
            self._depth += len(ids)
            if self._depth > _FRAMES:
                raise TooMuch(f"has over {_FRAMES} frames in different stacks")
        return stack

    # -- columns -------------------------------------------------------------------------------------------------------

    def _take_event(self, events: list[Fields]) -> None:
        into = self.events
        into["action"].extend([self._action(e.get("action")) for e in events])
        into["time"].extend([moment(e.get("time_us")) for e in events])
        into["stream"].extend([_number(e.get("stream"), UNKNOWN) for e in events])
        into["address"].extend([_number(e.get("addr"), UNKNOWN) for e in events])
        into["bytes"].extend([_number(e.get("size"), UNKNOWN) for e in events])
        into["free"].extend([_number(e.get("device_free"), UNKNOWN) for e in events])
        into["stack"].extend(_stacks(events))

    def _take_block(self, blocks: list[Fields]) -> None:
        into = self.blocks
        into["address"].extend([_number(b.get("address"), UNKNOWN) for b in blocks])
        into["bytes"].extend([_number(b.get("size"), UNKNOWN) for b in blocks])
        into["requested"].extend([_number(b.get("requested_size"), UNKNOWN) for b in blocks])
        into["state"].extend([STATES.get(str(b.get("state")), 2) for b in blocks])
        into["stack"].extend(_stacks(blocks))

    def _take_segment(self, segments: list[Fields]) -> None:
        into = self.segments
        for at, segment in enumerate(segments, len(into["bytes"])):
            blocks = segment["blocks"]
            if isinstance(blocks, Rows):
                self.placed += [(first, count, at) for first, count in blocks.parts]
        into["address"].extend([_number(s.get("address"), UNKNOWN) for s in segments])
        into["stream"].extend([_number(s.get("stream"), UNKNOWN) for s in segments])
        into["device"].extend([_number(s.get("device"), 0) for s in segments])
        into["small"].extend([int(s.get("segment_type") == "small") for s in segments])
        into["expandable"].extend([int(s.get("is_expandable") is True) for s in segments])
        into["bytes"].extend([_number(s.get("total_size"), UNKNOWN) for s in segments])

    def _action(self, name: object) -> int:
        action = ACTIONS.get(str(name))
        if action is None:
            self.unknown[str(name)[:40]] += 1
            return UNKNOWN
        return CODES[action]


def _kind(item: Fields) -> str | None:
    if "action" in item:
        return "event"
    if "total_size" in item and "blocks" in item:
        return "segment"
    if "state" in item and "size" in item:
        return "block"
    return "annotation" if "stage" in item and "name" in item else None


def _number(value: object, otherwise: int) -> int:
    return value if type(value) is int and -_MOST < value < _MOST else otherwise


def moment(value: object) -> int:
    """A time in microseconds; UNKNOWN for what cannot be one."""
    return value if type(value) is int and 0 <= value < _LAST_TIME else UNKNOWN


def _stacks(items: Iterable[Fields]) -> list[int]:
    return [stack.id if type(stack := item.get("frames")) is Stack else UNKNOWN for item in items]

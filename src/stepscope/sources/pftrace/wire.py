"""Protobuf messages, many at once: all messages of a kind are parsed side by side, a field of each in every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import I64, Mask

U64 = npt.NDArray[np.uint64]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
#: Bytes behind the end that a number may be looked for in.
_PADDING = 16


class Malformed(Exception):
    """No protobuf, or cut off; at which byte."""

    def __init__(self, at: int) -> None:
        super().__init__(f"at byte {at}")
        self.at = at


class Buffer:
    """The bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.bytes = np.frombuffer(data + bytes(_PADDING), np.uint8)
        #: Eight bytes from every place on, as a number.
        self.words: U64 = np.ndarray((self.size + _PADDING - 8,), "<u8", self.bytes, strides=(1,))

    def text(self, start: int, end: int) -> str:
        return self.bytes[start:end].tobytes().decode("utf-8", errors="replace")


@dataclass(frozen=True)
class Fields:
    """Fields of messages: of which message, its number, and its value or where its bytes are.

    Those of one message are in order; messages are not.
    """

    of: I64
    number: I64
    wire: I64
    value: U64
    start: I64
    end: I64

    def where(self, chosen: Mask) -> Fields:
        return Fields(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def numbered(self, number: int) -> Fields:
        """The fields of one number."""
        return self.where(self.number == number)

    def by_message(self) -> Fields:
        """In the order of the messages."""
        order = np.argsort(self.of, kind="stable")
        return Fields(*(getattr(self, name)[order] for name in self.__dataclass_fields__))

    def last(self, number: int, count: int, default: int = -1) -> I64:
        """The value of this field for each of `count` messages; the last one counts, as protobuf has it."""
        values = np.full(count, default, np.int64)
        mine = self.number == number
        values[self.of[mine]] = self.value[mine].view(np.int64)
        return values


def frames(buffer: Buffer) -> tuple[I64, I64]:
    """Where the packets of a trace are. Each begins where the one before it ends, so this goes one by one."""
    data = memoryview(buffer.bytes.tobytes())
    starts: list[int] = []
    ends: list[int] = []
    at, size = 0, buffer.size
    while at < size:
        if data[at] != 0x0A:
            raise Malformed(at)
        length = data[at + 1]
        at += 2
        if length > 0x7F:
            length &= 0x7F
            shift = 7
            while True:
                more = data[at]
                at += 1
                length |= (more & 0x7F) << shift
                shift += 7
                if more < 0x80 or shift > 35:
                    break
        starts.append(at)
        at += length
        ends.append(at)
    if at > size:
        raise Malformed(size)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def fields(buffer: Buffer, start: I64, end: I64) -> Fields:
    """All fields of the messages at these places."""
    at, of = start.copy(), np.arange(len(start), dtype=np.int64)
    rounds: list[tuple[npt.NDArray[Any], ...]] = []
    live = np.flatnonzero(at < end)
    at, of, stop = at[live], of[live], end[live]
    while len(of):
        tag, at = varints(buffer, at)
        number, wire = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
        value = np.zeros(len(of), np.uint64)
        first, last = at.copy(), at.copy()
        plain = np.flatnonzero(wire == VARINT)
        if len(plain):
            value[plain], last[plain] = varints(buffer, at[plain])
        eight = np.flatnonzero(wire == FIXED64)
        if len(eight):
            value[eight], last[eight] = buffer.words[np.minimum(at[eight], buffer.size)], at[eight] + 8
        long = np.flatnonzero(wire == LENGTH)
        if len(long):
            length, begin = varints(buffer, at[long])
            first[long] = begin
            last[long] = begin + np.minimum(length, np.uint64(buffer.size + 1)).astype(np.int64)
        four = np.flatnonzero(wire == FIXED32)
        if len(four):
            value[four], last[four] = (
                buffer.words[np.minimum(at[four], buffer.size)] & np.uint64(0xFFFFFFFF),
                at[four] + 4,
            )
        bad = (last > stop) | (number == 0) | ~np.isin(wire, (VARINT, FIXED64, LENGTH, FIXED32))
        if bad.any():
            raise Malformed(int(at[bad][0]))
        rounds.append((of, number, wire, value, first, last))
        live = np.flatnonzero(last < stop)
        at, of, stop = last[live], of[live], stop[live]
    columns = [np.concatenate([r[k] for r in rounds]) if rounds else np.empty(0, np.int64) for k in range(6)]
    of, number, wire, value, first, last = columns  # type: ignore[assignment]
    return Fields(of, number, wire, value.astype(np.uint64), first, last)


def varints(buffer: Buffer, at: I64) -> tuple[U64, I64]:
    """The numbers at these places, and where what follows begins. The eighth bit of a byte says that there are more."""
    value = buffer.bytes[np.minimum(at, buffer.size)].astype(np.uint64)
    behind = at + 1
    longer = np.flatnonzero(value > 0x7F)
    if len(longer):  # most are of one byte
        value[longer], behind[longer] = _long(buffer, at[longer])
    return value, behind


def _long(buffer: Buffer, at: I64) -> tuple[U64, I64]:
    """Numbers of several bytes: eight of them at once, then the bits that count are moved together."""
    word = buffer.words[np.minimum(at, buffer.size)]
    stop = ~word & np.uint64(0x8080808080808080)
    lowest = stop & (~stop + np.uint64(1))
    kept = word & (lowest | (lowest - np.uint64(1))) & np.uint64(0x7F7F7F7F7F7F7F7F)
    for low, high, by in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    ):
        kept = kept & np.uint64(low) | (kept & np.uint64(high)) >> np.uint64(by)
    length = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) // 8
    long = np.flatnonzero(stop == 0)
    if len(long):  # nine or ten bytes: times since 1970, and numbers below zero
        ninth, tenth = (buffer.bytes[np.minimum(at[long] + k, buffer.size)].astype(np.uint64) for k in (8, 9))
        kept[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        more = ninth >= 0x80
        kept[long] |= np.where(more, tenth << np.uint64(63), np.uint64(0))
        length[long] = np.where(more, 10, 9)
    return kept, at + length

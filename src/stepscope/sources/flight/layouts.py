"""Calls whose bytes are laid out alike, found and compared all at once.

A dump is thousands of dicts with the same keys, most of them made only of references to texts that stood before,
numbers, and lists of those. Two such dicts of one length with the same opcodes and keys at the same places hold the
same kinds of values at the same places. So one of them is read token by token; all others are compared with it in one
step, and their values are columns of bytes.

Nothing is taken on trust. A dict of a run begins where the one before it ends, and its bytes are the tokens of a whole
dict from there; what is not is left to the machine that reads opcode by opcode.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.model.flight import I64

_Bytes = npt.NDArray[np.uint8]

_BEGIN = re.compile(rb"\}\((?:h.|j....)", re.DOTALL)
_TOKEN = re.compile(rb"h.|j....|K.|M..|J....|\x8a\x08.{8}|G.{8}|[N\x88\x89\](e\x86u]", re.DOTALL)
_TEXTS = b"hj"
#: Calls that are looked for at once, and layouts that are told apart: bounds for hostile files.
_MOST_CALLS, _MOST_LAYOUTS = 1 << 20, 512
#: Bytes after the last: a number is read with seven bytes too many.
_PAD = bytes(16)


class Layout(msgspec.Struct):
    """Where the bytes are that make it, and where the values: by key, where its own token and its value begin and
    where that ends, and the opcode of the value."""

    where: I64
    fixed: _Bytes
    values: dict[str, tuple[int, int, int, int]]


class Runs:
    """Calls that follow each other, from a place in the pickle on."""

    def __init__(self, data: bytes, at: int, memo: list[Any]) -> None:
        begin = _BEGIN.match(data, at)
        self.data, self.layouts = data, list[Layout]()
        self.buffer: _Bytes = np.frombuffer(data + _PAD, np.uint8)
        #: where calls begin; the last is only the end of the one before it
        self.starts = self._places(begin[0], at) if begin else np.zeros(0, np.int64)
        #: by call, its layout; -1 where it has none
        self.layout = np.full(max(len(self.starts) - 1, 0), -1)
        self._compare(memo)
        self._others = np.flatnonzero(self.layout < 0)
        #: calls that were taken: the first, the one after the last, and the place of the first in the dump
        self.taken: list[tuple[int, int, int]] = []

    @property
    def end(self) -> int:
        """Where the last of the places is that were looked at."""
        return int(self.starts[-1]) if len(self.starts) == _MOST_CALLS else len(self.data)

    def take(self, at: int, place: int) -> tuple[int, int]:
        """Take the calls from `at` on that have a layout: returns where they end, and how many they are."""
        first = int(np.searchsorted(self.starts, at))
        if first >= len(self.layout) or self.starts[first] != at:
            return at, 0
        next_other = int(np.searchsorted(self._others, first))
        last = int(self._others[next_other]) if next_other < len(self._others) else len(self.layout)
        if last > first:
            self.taken.append((first, last, place))
        return int(self.starts[last]), last - first

    def rows(self) -> tuple[I64, I64]:
        """The calls that were taken, and their places in the dump."""
        none = np.zeros(0, np.int64)
        rows = [np.arange(first, last) for first, last, _ in self.taken]
        places = [np.arange(place, place + last - first) for first, last, place in self.taken]
        return np.concatenate([none, *rows]), np.concatenate([none, *places])

    def windows(self, starts: I64, length: int) -> _Bytes:
        """The `length` bytes from each start on."""
        every: _Bytes = np.ndarray((len(self.buffer) - length + 1, length), np.uint8, self.buffer, 0, (1, 1))
        return every[starts]

    def _places(self, text: bytes, at: int) -> I64:
        places = np.flatnonzero(self.buffer[at : len(self.data)] == text[0]) + at
        for n, byte in enumerate(text[1:], 1):
            places = places[self.buffer[places + n] == byte]
        return places[:_MOST_CALLS]

    def _compare(self, memo: list[Any]) -> None:
        lengths = np.diff(self.starts)
        order = np.argsort(lengths, kind="stable")
        bounds = np.flatnonzero(np.diff(lengths[order])) + 1
        for rows in np.split(order, bounds) if len(order) else ():
            length = int(lengths[rows[0]])
            bodies = self.windows(self.starts[rows], length)
            while len(rows) and len(self.layouts) < _MOST_LAYOUTS:
                layout = layout_of(bodies[0].tobytes(), memo)
                if layout is None:
                    rows, bodies = rows[1:], bodies[1:]
                    continue
                same = (bodies[:, layout.where] == layout.fixed).all(1)
                self.layout[rows[same]] = len(self.layouts)
                self.layouts.append(layout)
                rows, bodies = rows[~same], bodies[~same]


def layout_of(body: bytes, memo: list[Any]) -> Layout | None:
    """The layout of a dict of references, numbers and lists; None where it holds anything else."""
    tokens = _TOKEN.findall(body, 2)
    if 2 + sum(map(len, tokens)) != len(body):
        return None  # the search skipped something
    keys: list[tuple[int, int]] = []
    opcodes = [0, 1]
    values: dict[str, tuple[int, int, int, int]] = {}
    n, at = 0, 2
    while n < len(tokens) - 1:
        key = tokens[n]
        place = int.from_bytes(key[1:], "little")
        if key[0] not in _TEXTS or place >= len(memo) or not isinstance(memo[place], str):
            return None
        keys.append((at, at + len(key)))
        begin = at + len(key)
        after = _value(tokens, n + 1)
        if after < 0:
            return None
        end = begin
        for token in tokens[n + 1 : after]:
            opcodes += (end, end + 1) if token[0] == 0x8A else (end,)
            end += len(token)
        values[memo[place]] = (at, begin, end, tokens[n + 1][0] if after == n + 2 else 0)
        n, at = after, end
    if n != len(tokens) - 1 or tokens[n] != b"u":
        return None
    fixed = [*opcodes, len(body) - 1, *(place for first, last in keys for place in range(first, last))]
    where = np.array(sorted(fixed), np.int64)
    return Layout(where, np.frombuffer(body, np.uint8)[where], values)


def _value(tokens: list[bytes], n: int) -> int:
    """The token after the value that begins with token `n`; -1 where it is not of a kind that is known."""
    first = tokens[n]
    if first == b"]":
        return _list(tokens, n)
    if first in (b"(", b"e", b"u", b"\x86"):
        return -1
    pair = tokens[n + 2 : n + 3] == [b"\x86"]
    if pair:
        return n + 3 if tokens[n + 1][0] in _TEXTS and first[0] in _TEXTS else -1
    return n + 1


def _list(tokens: list[bytes], n: int) -> int:
    depth = 0
    while n < len(tokens):
        token = tokens[n]
        if token == b"]":
            opens = tokens[n + 1 : n + 2] == [b"("]
            depth += opens
            n += 1 + opens
        elif token == b"e":
            depth -= 1
            n += 1
        elif token in (b"(", b"u", b"\x86"):
            return -1
        else:
            n += 1
        if depth == 0:
            return n
    return -1

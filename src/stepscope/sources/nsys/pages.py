"""Integer columns of an SQLite table, straight from the pages of the file: many rows at a time, as arrays.

SQLite hands out rows one by one, and most of the time of reading a large export went into that. Its file format is
simple and frozen: a table is a tree of pages. An inner page lists the pages below it; a leaf lists cells, one per row:

    length of the payload | row id | length of the header, a type per column | a value per column

Lengths, row ids and types are varints; integers are big-endian, with as many bytes as their type says. Here the cells
of many leaves are taken apart side by side, column by column.

What such a reader must trust is checked on the way: pages are what their place says, cells lie within their page and
values within their cell, and row ids ascend over the whole table, so that each row was met once. Whatever is not plain
(text where a number is wanted, rows that overflow their page, a log that was not merged, damage) is `NotPlain`: SQLite
itself reads it then, and says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import I64, Mask

_INNER, _LEAF = 5, 13
_INNER_HEADER, _LEAF_HEADER = 12, 8
#: Bytes of an integer, by its serial type; -1 for what is not one. Types 8 and 9 are 0 and 1.
_WIDTH = np.full(256, -1, dtype=np.int64)
_WIDTH[:10] = (0, 1, 2, 3, 4, 6, 8, -1, 0, 0)
_NULL, _ZERO, _ONE = 0, 8, 9
#: A tree of so many levels would hold more pages than a file can have.
_DEEPEST = 20
#: Bytes of leaves that are taken apart together: what is made of them stays in the CPU's cache.
_BLOCK_BYTES = 2 << 20

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]


class NotPlain(Exception):
    """The table cannot be read this way; the text says why."""


@dataclass(frozen=True)
class Rows:
    """Some rows in their order: row ids and columns, each with where it is null (None: nowhere)."""

    rowid: I64
    columns: list[tuple[I64, Mask | None]]


class Pages:
    """The pages of one file. It is read, not mapped: a mapped file that somebody cuts ends the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
        self.size = 65536 if header[16:18] == b"\0\1" else int.from_bytes(header[16:18], "big")
        if len(header) < 100 or header[18:20] != b"\x01\x01" or self.size < 512 or self.size % 8:
            raise NotPlain("changes may lie in a log")
        self._usable = self.size - header[20]
        self._count = size // self.size

    def leaves(self, root: int) -> I64:
        """Numbers of the leaves of a table, in the order of its rows."""
        level = np.array([root], dtype=np.int64)
        with self._path.open("rb", buffering=0) as file:
            for _ in range(_DEEPEST):
                if level.min() < 2 or level.max() > self._count or len(level) > self._count:
                    raise NotPlain("a page that is not there")
                file.seek((int(level[0]) - 1) * self.size)
                if file.read(1) == bytes([_LEAF]):
                    return level  # whether all are leaves is seen when they are read
                level = np.concatenate([self._below(file, page) for page in level.tolist()])
        raise NotPlain("a tree without leaves")

    def _below(self, file: FileIO, page: int) -> I64:
        """The pages that an inner page lists."""
        file.seek((page - 1) * self.size)
        content = np.frombuffer(file.read(self.size), np.uint8)
        if len(content) < self.size or content[0] != _INNER:
            raise NotPlain("a page of another kind")
        cells = int(content[3]) << 8 | int(content[4])
        end = _INNER_HEADER + 2 * cells
        if end > self._usable:
            raise NotPlain("more cells than a page holds")
        pointers = content[_INNER_HEADER:end].view(">u2").astype(np.int64)
        if cells and (pointers.min() < end or pointers.max() > self._usable - 5):
            raise NotPlain("a cell outside of its page")
        places = np.append(pointers, 8)[:, None] + np.arange(4)  # the last page is named in the header
        return content[places].reshape(-1).view(">u4").astype(np.int64)

    def read(self, leaves: I64, wanted: Sequence[int]) -> Rows:
        """The columns at these places of the record, of all rows of some leaves."""
        blocks = []
        with self._path.open("rb", buffering=0) as file:
            block = max(1, _BLOCK_BYTES // self.size)
            for first in range(0, len(leaves), block):
                some = leaves[first : first + block]
                blocks.append(_Cells(self._loaded(file, some), len(some), self.size, self._usable).rows(wanted))
        return _joined(blocks)

    def _loaded(self, file: FileIO, pages: I64) -> U8:
        """The content of some pages, one after the other, and some bytes more to look ahead into."""
        content = np.zeros(len(pages) * self.size + 16, dtype=np.uint8)
        view = content.data
        breaks = np.flatnonzero(np.diff(pages) != 1) + 1
        for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(pages)], strict=True):
            length = (last - first) * self.size
            into = view[first * self.size : last * self.size]
            file.seek((int(pages[first]) - 1) * self.size)
            if file.readinto(into) != length:
                raise NotPlain("the file was cut while it was read")
        return content


class _Cells:
    """The cells of some leaves that lie one after the other."""

    def __init__(self, content: U8, pages: int, size: int, usable: int) -> None:
        self._bytes, self._words = content, content.view(np.uint64)
        base = np.arange(pages, dtype=np.int64) * size
        count = content[base + 3].astype(np.int64) << 8 | content[base + 4]
        if (content[base] != _LEAF).any() or (_LEAF_HEADER + 2 * count > usable).any():
            raise NotPlain("a page of another kind")
        pages_base = np.repeat(base, count)
        nth = np.arange(len(pages_base)) - np.repeat(np.cumsum(count) - count, count)
        pointer = content.view(">u2").take((pages_base + _LEAF_HEADER >> 1) + nth).astype(np.int64)
        least = np.repeat(_LEAF_HEADER + 2 * count, count)
        if (pointer < least).any() or (pointer > usable - 4).any():
            raise NotPlain("a cell outside of its page")
        self._cell, self._page_end = pages_base + pointer, pages_base + usable
        self._most = usable - 35  # what is longer goes on in other pages

    def rows(self, wanted: Sequence[int]) -> Rows:
        """Row ids and the columns at these places of the record."""
        if not len(self._cell):
            empty = np.empty(0, dtype=np.int64)
            return Rows(empty, [(empty, None) for _ in wanted])
        payload, at = self._short_varint(self._cell)
        rowid, at = self._varint(at)
        end = at + payload
        header = self._at(at).astype(np.int64)
        columns = max(wanted, default=-1) + 1
        if (payload > self._most).any() or (end > self._page_end).any() or (at + header > end).any():
            raise NotPlain("a row that does not fit its page")
        if (header > 127).any() or (header <= columns).any():
            raise NotPlain("rows of other columns")
        value = at + header
        columns_at: dict[int, tuple[I64, Mask | None]] = {}
        for place in range(columns):
            kind = self._at(at + (place + 1))
            width = _WIDTH.take(kind)
            if width.min() < 0:
                raise NotPlain("values that are not integers")
            if place in wanted:
                columns_at[place] = self._integers(kind, width, value)
            value = value + width
        if (value > end).any():
            raise NotPlain("a value outside of its row")
        return Rows(rowid, [columns_at[place] for place in wanted])

    def _at(self, places: I64) -> U8:
        """The bytes there. Places of damaged cells may lie anywhere: what is read there is not used."""
        return self._bytes.take(places, mode="clip")

    def _ahead(self, at: I64) -> U64:
        """The eight bytes from each place on, as one number: two whole words, moved."""
        word, bits = at >> 3, ((at & 7) << 3).view(np.uint64)
        first, second = self._words.take(word, mode="clip"), self._words.take(word + 1, mode="clip")
        first.byteswap(inplace=True)
        second.byteswap(inplace=True)
        first <<= bits
        second >>= np.uint64(1)
        second >>= np.uint64(63) - bits
        first |= second
        return first

    def _integers(self, kind: U8, width: I64, at: I64) -> tuple[I64, Mask | None]:
        least, most = int(kind.min()), int(kind.max())
        if least == most and width[0] == 0:
            null = np.ones(len(kind), dtype=bool) if most == _NULL else None
            return np.full(len(kind), int(most == _ONE), dtype=np.int64), null
        value = self._ahead(at).view(np.int64)
        value >>= np.maximum(64 - 8 * width, 0) if least != most else 64 - 8 * int(width[0])
        if least == _NULL or most >= _ZERO:
            value[width == 0] = 0
            value[kind == _ONE] = 1
        return value, kind == _NULL if least == _NULL else None

    def _short_varint(self, at: I64) -> tuple[I64, I64]:
        """Varints of one or two bytes, and what comes behind them."""
        first = self._at(at).astype(np.int64)
        if first.max() < 128:
            return first, at + 1
        second = self._at(at + 1).astype(np.int64)
        two = first >= 128
        if second[two].max() >= 128:
            raise NotPlain("a row that does not fit its page")
        return np.where(two, (first & 127) << 7 | second, first), at + 1 + two

    def _varint(self, at: I64) -> tuple[I64, I64]:
        """Varints of up to eight bytes, and what comes behind them: row ids, of which few have another length."""
        ahead = self._ahead(at)
        value, length = np.zeros(len(at), dtype=np.int64), np.zeros(len(at), dtype=np.int64)
        going = np.ones(len(at), dtype=bool)
        for byte in range(8):
            part = (ahead >> np.uint64(56 - 8 * byte)).astype(np.uint8)
            if going.all():
                value = value << 7 | (part & 127)
                length += 1
            else:
                value = np.where(going, value << 7 | (part & 127), value)
                length += going
            going = going & (part >= 128)
            if not going.any():
                return value, at + length
        raise NotPlain("a row id beyond any table")


def _joined(blocks: list[Rows]) -> Rows:
    if len(blocks) == 1:
        return blocks[0]
    columns = []
    for parts in zip(*(block.columns for block in blocks), strict=True):
        some_null = any(null is not None for _, null in parts)
        masks = [np.zeros(len(v), dtype=bool) if null is None else null for v, null in parts] if some_null else []
        columns.append((np.concatenate([v for v, _ in parts]), np.concatenate(masks) if some_null else None))
    return Rows(np.concatenate([block.rowid for block in blocks]), columns)

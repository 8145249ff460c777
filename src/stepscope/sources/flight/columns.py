"""Values of calls that are laid out alike, as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepscope.model.flight import I64, NONE
from stepscope.sources.flight.layouts import Runs
from stepscope.sources.flight.pickles import Reader

_NOTHING = 0x4E
#: By opcode, the bytes of its operand; of what is not a text or a number, more than any.
_WIDTHS = np.full(256, 64)
for _code, _width in {0x68: 1, 0x6A: 4, 0x4B: 1, 0x4D: 2, 0x4A: 4, 0x8A: 9, _NOTHING: 0, 0x88: 0, 0x89: 0}.items():
    _WIDTHS[_code] = _width


class Columns:
    """The values of some calls of a run."""

    def __init__(self, reader: Reader, runs: Runs, rows: I64) -> None:
        self._reader, self._runs = reader, runs
        self._starts, self._layout = runs.starts[rows], runs.layout[rows]
        self._known: dict[tuple[str, ...], I64 | None] = {}

    def numbers(self, key: str) -> I64:
        """A number each; NONE for whatever is not one."""
        code, raw = self._operand(key)
        value = np.full(len(code), NONE)
        for opcode in np.unique(code).tolist():
            same = code == opcode
            if opcode == 0x8A:
                value[same] = raw[same]
            elif opcode == 0x4A:
                value[same] = raw[same] << 32 >> 32
            elif opcode in (0x4B, 0x4D):
                value[same] = raw[same] & (0xFF if opcode == 0x4B else 0xFFFF)
            elif opcode in (0x88, 0x89):
                value[same] = opcode == 0x88
        return value

    def values(self, key: str) -> tuple[I64, list[Any]]:
        """By call, the number of its value among those that are returned, too."""
        number, first = _numbered([self._ids((key,))])
        return number, [self._decoded(((key,),), row)[0] for row in first]

    def numbered(
        self, make: Callable[..., int], *names: tuple[str, ...], otherwise: tuple[str, ...] | None = None
    ) -> I64:
        """By call, what `make` returns for the values of `names`. Names of one tuple lie beside each other."""
        number, first = _numbered([self._ids(one) for one in names])
        made = np.zeros(len(first), np.int64)
        for n in np.argsort(first).tolist():
            values = self._decoded(names, first[n])
            if otherwise is not None and values == [None]:
                values = self._decoded((otherwise,), first[n])
            made[n] = make(*values)
        return made[number]

    def _ids(self, names: tuple[str, ...]) -> I64:
        """By call, a number for the bytes of these values: equal ones hold equal values."""
        ids = self._known.get(names)
        if ids is None:
            ids = self._known[names] = self._short(names[0]) if len(names) == 1 else None
            if ids is None:
                pieces = self._pieces(names)
                numbers = {piece: n for n, piece in enumerate(dict.fromkeys(pieces))}
                ids = self._known[names] = np.array([numbers[piece] for piece in pieces], np.int64)
        return ids

    def _short(self, key: str) -> I64 | None:
        """Opcode and operand as one number, where they are so short."""
        code, raw = self._operand(key)
        width = _WIDTHS[code]
        if len(width) and width.max() > 4:
            return None
        return (code << 32) + (raw & ((1 << 8 * width) - 1))

    def _operand(self, key: str) -> tuple[I64, I64]:
        """By call, the opcode of its value, and the eight bytes after that as a number."""
        spans = [layout.values.get(key) for layout in self._runs.layouts]
        codes = np.array([span[3] if span else _NOTHING for span in spans] or [_NOTHING], np.int64)
        # The length of a number of 64 bits stands before it.
        begins = np.array([span[1] + 1 + (span[3] == 0x8A) if span else 0 for span in spans] or [0], np.int64)
        raw = self._runs.windows(self._starts + begins[self._layout], 8).view("<i8").reshape(-1)
        return codes[self._layout], raw.astype(np.int64)

    def _pieces(self, names: tuple[str, ...]) -> list[bytes]:
        """By call, the bytes of these values with their keys: equal ones hold equal values."""
        begins, ends = [0], [0]
        for layout in self._runs.layouts:
            spans = [layout.values[name] for name in names if name in layout.values]
            begins.append(min((span[0] for span in spans), default=0))
            ends.append(max((span[2] for span in spans), default=0))
        data = self._runs.data
        begin = self._starts + np.array(begins, np.int64)[self._layout + 1]
        end = self._starts + np.array(ends, np.int64)[self._layout + 1]
        return [data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]

    def _decoded(self, names: tuple[tuple[str, ...], ...], row: int) -> list[Any]:
        start, layout = int(self._starts[row]), self._runs.layouts[int(self._layout[row])]
        decoded = []
        for name in (name for group in names for name in group):
            span = layout.values.get(name)
            token = self._runs.data[start + span[1] : start + span[2]] if span else b"N"
            decoded.append(self._reader.decoded(token))
        return decoded


def _numbered(columns: list[I64]) -> tuple[I64, list[int]]:
    """Numbers for rows of columns, equal for equal rows; and of each number the first row that has it."""
    number, first = np.zeros(len(columns[0]), np.int64), np.zeros(0, np.int64)
    for column in columns:
        kinds = np.unique(column, return_inverse=True)[1].reshape(-1)
        _, first, number = np.unique(number * (len(column) + 1) + kinds, return_index=True, return_inverse=True)
        number = number.reshape(-1)
    return number, first.tolist()

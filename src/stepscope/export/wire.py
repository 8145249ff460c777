"""Protobuf messages of many rows at once: messages of one kind are a matrix of bytes, a row each.

Numbers of a column all take the width of the largest: protobuf allows more bytes than a number needs. So every field
has its place in the matrix, and a column is written for all rows in a few array operations. Fields that a row does not
have are cut out at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import Mask

U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Some:
    """Parts that only some rows have."""

    parts: Sequence[Part]
    there: Mask


#: Bytes that all rows share, a matrix with a row for each, or either for some rows only.
Part = bytes | U8 | Some

_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """One number, in as few bytes as it needs."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(field: int, value: str) -> bytes:
    """One text."""
    data = value.encode()
    return _tag(field, _LENGTH) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """One number that all rows share."""
    return _tag(field, _VARINT) + varint(value)


def numbers(field: int, values: npt.NDArray[np.int64]) -> list[Part]:
    """A column of integers; negative ones take ten bytes, as protobuf has it."""
    largest = int(values.astype(np.int64).view(np.uint64).max()) if len(values) else 0
    return [_tag(field, _VARINT), _numbers(values, len(varint(largest)))]


def fixed(field: int, values: npt.NDArray[np.uint64] | npt.NDArray[np.float64]) -> list[Part]:
    """A column of eight bytes each: doubles, or ids."""
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    return [_tag(field, _FIXED64), little.view(np.uint8).reshape(-1, 8)]


def message(field: int, parts: Sequence[Part]) -> list[Part]:
    """A message in a field of another. Rows that lack some of it are shorter, each by its own measure."""
    width = _width(parts)
    if not _some(parts):
        return [_tag(field, _LENGTH) + varint(width), *parts]
    less = sum((~part.there * _width(part.parts) for part in parts if isinstance(part, Some)), np.int64(0))
    return [_tag(field, _LENGTH), _numbers(np.asarray(width - less), len(varint(width))), *parts]


def rows(parts: Sequence[Part], count: int) -> bytes:
    """All rows, one behind the other."""
    matrix = np.empty((count, _width(parts)), np.uint8)
    there = np.ones(matrix.shape, dtype=bool) if _some(parts) else None
    _fill(parts, matrix, there)
    return (matrix if there is None else matrix[there]).tobytes()


def _fill(parts: Sequence[Part], matrix: U8, there: Mask | None) -> None:
    at = 0
    for part in parts:
        width = _width([part])
        place = matrix[:, at : at + width]
        if isinstance(part, Some):
            _fill(part.parts, place, None)
            assert there is not None
            there[:, at : at + width] = part.there[:, None]
        else:
            place[:] = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        at += width


def _some(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, Some) for part in parts)


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _width(parts: Sequence[Part]) -> int:
    """Bytes of a row that has everything."""
    return sum(
        _width(p.parts) if isinstance(p, Some) else len(p) if isinstance(p, bytes) else p.shape[1] for p in parts
    )


def _numbers(values: npt.NDArray[np.int64], width: int) -> U8:
    """Numbers in so many bytes each."""
    unsigned = values.astype(np.int64).view(np.uint64)
    matrix = np.empty((len(unsigned), width), np.uint8)
    for k in range(width):
        more = 0x80 if k + 1 < width else 0
        matrix[:, k] = (unsigned >> np.uint64(7 * k)).astype(np.uint8) & np.uint8(0x7F) | np.uint8(more)
    return matrix

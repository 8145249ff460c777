"""Columns of numbers as compact text: the smallest integers that hold them, one block, compressed, in base64.

The page undoes it with the browser's own DecompressionStream and reads the columns as typed arrays, without a copy.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy.typing as npt

#: Names of the types, as the page knows them; a typed array must begin at a multiple of its size.
_TYPES = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "f8": "<f8"}
_ALIGN = 8


class Columns:
    """A block that grows by columns; each is described by its type, place and length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Append a column of non-negative whole numbers; what the page needs to find it."""
        largest = int(values.max()) if len(values) else 0
        if len(values) and int(values.min()) < 0:
            raise ValueError("columns hold no negative numbers")
        kind = next(k for k in _TYPES if k == "f8" or largest < 256 ** int(k[1]))
        self._bytes += b"\0" * (-len(self._bytes) % _ALIGN)
        place = {"type": kind, "at": len(self._bytes), "n": len(values)}
        self._bytes += values.astype(_TYPES[kind]).tobytes()
        return place

    def bytes(self) -> bytes:
        """The whole block."""
        return bytes(self._bytes)

    def text(self) -> str:
        """The same, compressed, as text."""
        return base64.b64encode(gzip.compress(bytes(self._bytes), 6, mtime=0)).decode("ascii")

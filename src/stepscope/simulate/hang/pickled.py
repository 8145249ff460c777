"""Pickles as PyTorch's C++ writes them: protocol 2, texts and stack frames by the memo, all else in full."""

from __future__ import annotations

import struct
from typing import Any


class Frame(dict[str, Any]):
    """A dict that is written once, and referred to from then on."""


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self._texts: dict[str, bytes] = {}
        self._frames: dict[int, bytes] = {}
        self._count = 0

    def _memoized(self) -> bytes:
        number, self._count = self._count, self._count + 1
        if number < 256:
            self.out += b"q" + bytes([number])
            return b"h" + bytes([number])
        self.out += b"r" + struct.pack("<I", number)
        return b"j" + struct.pack("<I", number)

    def text(self, text: str) -> None:
        known = self._texts.get(text)
        if known is not None:
            self.out += known
            return
        data = text.encode()
        self.out += b"X" + struct.pack("<I", len(data)) + data
        self._texts[text] = self._memoized()

    def value(self, value: Any) -> None:
        if isinstance(value, str):
            self.text(value)
        elif value is None:
            self.out += b"N"
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self._number(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, tuple):
            for item in value:
                self.value(item)
            self.out += b"\x86"
        elif isinstance(value, Frame):
            known = self._frames.get(id(value))
            if known is None:
                self._dict(value)
                self._frames[id(value)] = self._memoized()
            else:
                self.out += known
        elif isinstance(value, dict):
            self._dict(value)
        else:
            self.out += b"]("
            for item in value:
                self.value(item)
            self.out += b"e"

    def _dict(self, value: dict[str, Any]) -> None:
        self.out += b"}("
        for key, item in value.items():
            self.text(key)
            self.value(item)
        self.out += b"u"

    def _number(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", value)


def pickled(value: Any) -> bytes:
    """The pickle of dicts, lists, texts and numbers."""
    writer = _Writer()
    writer.value(value)
    return bytes(writer.out + b".")

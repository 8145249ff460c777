"""Perfetto's traces (`.pftrace`): those of torch.profiler (torch 2.15 on) and our own exports, compressed or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.model.exported import MARK

if TYPE_CHECKING:
    from stepscope.model.source import Reader

#: A trace is a list of packets: the field 1, of variable length.
_PACKET_TAG = 0x0A


def open_pftrace(path: Path) -> Reader:
    """The trace as a source: it is read whole, since its events refer to texts and tracks told once."""
    from stepscope.sources.pftrace.reading import opened

    return opened(path)


def looks_like_pftrace(head: bytes) -> bool:
    """Whether the first bytes (unpacked) are those of packets: the first one fits, and another one follows it.

    A text may begin with a line break, which is a packet's first byte: so it takes both. Only the header of our own
    exports may be longer than what is looked at.
    """
    tag = bytes([_PACKET_TAG])
    at, length, shift = 1, 0, 0
    if head[:1] != tag:
        return False
    while at < min(len(head), 6):
        length |= (head[at] & 0x7F) << shift
        shift += 7
        at += 1
        if head[at - 1] < 0x80:
            break
    if at + length >= len(head):
        return MARK.encode() in head[:64]
    inner = head[at]
    return length > 0 and inner & 7 in (0, 1, 2, 5) and inner >> 3 > 0 and head[at + length : at + length + 1] == tag

"""Perfetto's traces (`.pftrace`): those of torch.profiler (torch 2.15 on) and our own exports, compressed or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.model.source import Source

#: A trace is a list of packets: the field 1, of variable length.
_PACKET_TAG = 0x0A


def open_pftrace(path: Path) -> Source:
    """The trace as a source: it is read whole, since its events refer to texts and tracks told once."""
    from stepscope.sources.pftrace.reading import opened

    return opened(path)


def looks_like_pftrace(head: bytes) -> bool:
    """Whether the first bytes (unpacked) are those of packets: the first one fits, and another one follows it."""
    at, length, shift = 1, 0, 0
    if head[:1] != bytes([_PACKET_TAG]):
        return False
    while at < min(len(head), 6):
        length |= (head[at] & 0x7F) << shift
        shift += 7
        at += 1
        if head[at - 1] < 0x80:
            break
    # The first field of a packet, by the numbers that Perfetto has for them; and no text: JSON or CSV never has both.
    inner = head[at : at + 1]
    following = head[at + length : at + length + 1]
    return (
        bool(inner) and inner[0] & 7 in (0, 1, 2, 5) and inner[0] >> 3 > 0 and following in (b"", bytes([_PACKET_TAG]))
    )

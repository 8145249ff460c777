"""Whose trace it is: the first packet of an export of ours says so; else it is torch.profiler's, or of no use here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepscope.errors import BadInput
from stepscope.model.exported import MARK, Header
from stepscope.model.source import Reader
from stepscope.sources.kineto.bytestream import ByteStream
from stepscope.sources.pftrace.wire import Buffer, Malformed, fields, varints

_FIRST = 1 << 16


def opened(path: Path) -> Reader:
    header = _header(path)
    if header is not None:
        from stepscope.sources.pftrace.ours import source_of

        return source_of(path, header)
    from stepscope.sources.pftrace.torch_trace import torch_source

    return torch_source(path)


def _header(path: Path) -> Header | None:
    """What the first packet of an export says; None where it is something else."""
    with ByteStream(path) as stream:
        head = stream.read(_FIRST)
        length, start = varints(Buffer(head), np.array([1]))
        end = int(start[0]) + int(length[0])
        if end > len(head):
            head += stream.read(end - len(head))
    if MARK.encode() not in head[:end]:
        return None
    buffer = Buffer(head[:end])
    try:
        packet = fields(buffer, start, np.array([end])).numbered(60)
        track = fields(buffer, packet.start, packet.end).numbered(14)
        return Header.parse(buffer.text(int(track.start[0]), int(track.end[0])))
    except (Malformed, ValueError, IndexError):
        raise BadInput(f"{path}: an export whose header is damaged", "export it again") from None

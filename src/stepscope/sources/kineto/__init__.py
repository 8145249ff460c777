"""torch.profiler (Kineto) traces: JSON, plain or gzip-compressed, of one rank or of several merged."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.sources.kineto.source import KinetoSource

_SNIFFED_BYTES = 1 << 16
_MARKS = (b'"traceEvents"', b'"ph"', b'"deviceProperties"', b'"schemaVersion"')


def open_kineto(path: Path | str) -> KinetoSource:
    """The trace as a source. Raises BadInput, here or when it is first read, where the file is not a valid trace."""
    from stepscope.sources.kineto.bytestream import ByteStream
    from stepscope.sources.kineto.source import KinetoSource

    ByteStream(Path(path)).close()
    return KinetoSource(Path(path))


def looks_like_kineto(path: Path | str) -> bool:
    """Whether the first bytes are those of a Chrome-format JSON trace, valid or not."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except OSError:
        return False
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _SNIFFED_BYTES)
        except zlib.error:
            return False
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] in (b"{", b"[") and any(mark in text for mark in _MARKS)

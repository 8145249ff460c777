"""The bytes of a trace, decompressed on the way: a trace is never in memory as a whole."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from stepscope.errors import BadInput

_GZIP_MAGIC = b"\x1f\x8b"
#: Compressed bytes per read. The standard library's GzipFile reads 8 KiB at a time, which costs a third of the speed.
_BLOCK = 1 << 20
_AGAIN = "record it again, and let the program end before copying the file"


class Stream(Protocol):
    """Bytes from front to back, and how far that is."""

    path: Path

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def position(self) -> tuple[int, int]: ...

    def read(self, size: int) -> bytes: ...


class MemoryStream:
    """Bytes that were made of a file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self._data = data
        self._at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._data = b""

    def position(self) -> tuple[int, int]:
        return self._at, len(self._data)

    def read(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


class ByteStream:
    """A plain or gzip-compressed file, told apart by its first bytes and not by its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
            magic = self._file.read(2)
            self._size = self._file.seek(0, os.SEEK_END)
            self._file.seek(0)
        except OSError as error:
            raise BadInput(
                f"{path}: cannot be read ({error.strerror})", "check the path and its permissions"
            ) from error
        if not magic:
            self._file.close()
            raise BadInput(f"{path}: the file is empty", f"the profiler wrote nothing; {_AGAIN}")
        self._inflate = zlib.decompressobj(wbits=31) if magic == _GZIP_MAGIC else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def position(self) -> tuple[int, int]:
        """Bytes of the file read so far, and all of them; compressed ones where it is compressed."""
        return self._file.tell(), self._size

    def read(self, size: int) -> bytes:
        """At least `size` bytes, fewer only at the end of the file."""
        if self._inflate is None:
            return self._file.read(size)
        parts: list[bytes] = []
        got = 0
        while got < size:
            part = self._inflated(size - got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def _inflated(self, size: int) -> bytes:
        """Some decompressed bytes; none at the end of the last gzip member."""
        assert self._inflate is not None
        while True:
            if self._inflate.eof:
                rest = self._inflate.unused_data or self._file.read(_BLOCK)
                # Some file systems and tools pad archives with zeros: gzip(1) ignores them too.
                rest = rest.lstrip(b"\0")
                if not rest:
                    return b""
                self._inflate = zlib.decompressobj(wbits=31)
            else:
                rest = self._inflate.unconsumed_tail or self._file.read(_BLOCK)
                if not rest:
                    raise BadInput(f"{self.path}: the gzip data ends in the middle (cut off)", _AGAIN)
            try:
                part = self._inflate.decompress(rest, size)
            except zlib.error as error:
                raise BadInput(f"{self.path}: the gzip data is damaged ({error})", "copy the file again") from error
            if part:
                return part

"""Tables that do not fit: their columns go to temporary files, which are mapped and read like any other column.

Pages of a mapped file are the kernel's to drop, so that what lies there never makes a process too large: it is read
again when it is needed. The files have no name: they are gone with the table, however the process ends. Only columns of
plain numbers without a null go there. What else there is takes little (words are a byte a row), or stays where it is.
Where nothing can be written, tables stay in memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.files import budget, temporary

#: Columns smaller than this stay in memory: each file is a descriptor, and a look at the disk.
_SMALL = 1 << 20

#: Bytes of parts that are joined before they are written.
_TOGETHER = 32 << 20


def kept(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame as it is where there is room beside it; else the same, in files."""
    if budget.roomy(0, held=int(frame.estimated_size())):
        return frame
    return frame.with_columns(column for column in map(_column, frame.get_columns()) if column is not None)


def kept_column(column: pl.Series) -> pl.Series:
    """The same of one column."""
    if budget.roomy(0, held=int(column.estimated_size())):
        return column
    mapped = _column(column)
    return column if mapped is None else mapped


def gathered(frame: pl.DataFrame, rows: npt.NDArray[Any]) -> pl.DataFrame:
    """`frame[rows]`, column by column where there is no room for two of them."""
    if budget.roomy(int(frame.estimated_size())):
        return frame[rows]
    return pl.DataFrame([kept_column(column.gather(rows)) for column in frame.get_columns()])


def joined(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The parts of a table below each other; in files from where on there is no room.

    Parts without rows may lack types, and are left out where others have some.
    """
    held: list[pl.DataFrame] = []
    columns: list[_Parts] = []
    empty, size = pl.DataFrame(), 0
    for part in parts:
        if not part.height:
            empty = part
            continue
        held.append(part)
        size += int(part.estimated_size())
        if size >= _TOGETHER and (columns or not budget.roomy(0, held=size)):
            columns = columns or [_Parts(column) for column in part.get_columns()]
            _write(columns, held)
            held, size = [], 0
    if not columns:
        return pl.concat(held) if held else empty
    _write(columns, held)
    return pl.DataFrame([column.series() for column in columns])


def _write(columns: list[_Parts], frames: list[pl.DataFrame]) -> None:
    for frame in frames:
        for column, part in zip(columns, frame.get_columns(), strict=True):
            column.append(part)


class _Parts:
    """A column that grows: in a file while it can, then in memory."""

    def __init__(self, like: pl.Series) -> None:
        self._name, self._dtype = like.name, like.dtype
        self._rest: list[pl.Series] = []
        self._file: IO[bytes] | None = None
        if _plain(like.dtype):
            try:
                self._file = _file()
            except OSError:
                self._file = None

    def append(self, part: pl.Series) -> None:
        if self._file is not None and not self._rest and not part.null_count():
            at = self._file.tell()
            try:
                _put(self._file, part)
                return
            except OSError:  # the disk is full
                self._file.seek(at)
                self._file.truncate()
        self._rest.append(part)

    def series(self) -> pl.Series:
        if self._file is None:
            return pl.concat(self._rest)
        with self._file:
            first = _map(self._file, self._name, self._dtype)
        return pl.concat([first, *self._rest]) if self._rest else first


def _column(column: pl.Series) -> pl.Series | None:
    """The column in a file; None where it stays, or is in one already."""
    if not _plain(column.dtype) or column.null_count() or column.estimated_size() < _SMALL or _in_file(column):
        return None
    try:
        with _file() as file:
            _put(file, column)
            return _map(file, column.name, column.dtype)
    except OSError:  # no room on the disk either
        return None


def _plain(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_float()


def _in_file(column: pl.Series) -> bool:
    """Whether the column lies in a file that is mapped, this module's or the cache's."""
    if column.n_chunks() != 1:
        return False
    at = column.to_numpy().ctypes.data
    try:
        with open("/proc/self/maps", "rb") as lines:  # noqa: PTH123
            for line in lines:
                addresses, _, _, _, inode, *_ = line.split()
                first, last = (int(address, 16) for address in addresses.split(b"-"))
                if first <= at < last:
                    return inode != b"0"
    except (OSError, ValueError):
        pass
    return False


def _put(file: IO[bytes], column: pl.Series) -> None:
    for chunk in column.get_chunks():
        file.write(np.ascontiguousarray(chunk.to_numpy()).view(np.uint8).data)


def _map(file: IO[bytes], name: str, dtype: Any) -> pl.Series:
    """What was written to a file as a column of that type; the series keeps the mapping alive."""
    file.flush()
    if not file.tell():
        return pl.Series(name, [], dtype=dtype)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    values = np.frombuffer(mapping, pl.Series([], dtype=dtype).to_numpy().dtype)
    return pl.Series(name, values, dtype=dtype)


def _file() -> IO[bytes]:
    """A file without a name, on a disk if there is one."""
    return tempfile.TemporaryFile(prefix="stepscope-", dir=temporary.on_disk())

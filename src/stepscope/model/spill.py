"""Tables that do not fit: their columns go to temporary files, which are mapped and read like any other column.

Pages of a mapped file are the kernel's to drop, so that what lies there never makes a process too large: it is read
again when it is needed. The files have no name: they are gone with the table, however the process ends. Only columns of
plain numbers without a null go there. What else there is takes little (words are a byte a row), or stays where it is.
Where nothing can be written, tables stay in memory.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.files import budget, temporary

#: Columns smaller than this stay in memory: each file is a descriptor, and a look at the disk.
_SMALL = 1 << 20


def kept(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame as it is where there is room beside it; else the same, in files."""
    size = int(frame.estimated_size())
    if budget.roomy(size):
        return frame
    return frame.with_columns(column for column in map(_column, frame.get_columns()) if column is not None)


def kept_column(column: pl.Series) -> pl.Series:
    """The same of one column."""
    if budget.roomy(int(column.estimated_size())):
        return column
    mapped = _column(column)
    return column if mapped is None else mapped


def gathered(frame: pl.DataFrame, rows: npt.NDArray[np.int64]) -> pl.DataFrame:
    """`frame[rows]`, column by column where there is no room for two of them."""
    if budget.roomy(2 * int(frame.estimated_size())):
        return frame[rows]
    return pl.DataFrame([kept_column(column.gather(rows)) for column in frame.get_columns()])


def _column(column: pl.Series) -> pl.Series | None:
    """The column in a file; None where it stays."""
    if not column.dtype.is_numeric() or column.dtype == pl.Decimal or column.null_count():
        return None
    if column.estimated_size() < _SMALL:
        return None
    try:
        with _file() as file:
            for chunk in column.get_chunks():
                file.write(np.ascontiguousarray(chunk.to_numpy()).view(np.uint8).data)
            return mapped(file, column.name, column.dtype)
    except OSError:  # no room on the disk either
        return None


def mapped(file: IO[bytes], name: str, dtype: Any) -> pl.Series:
    """What was written to a file as a column of that type; the series keeps the mapping alive."""
    file.flush()
    kind = pl.Series([], dtype=dtype).to_numpy().dtype
    if not file.tell():
        return pl.Series(name, [], dtype=dtype)
    return pl.Series(name, np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), kind), dtype=dtype)


def _file() -> IO[bytes]:
    """A file without a name, on a disk if there is one."""
    return tempfile.TemporaryFile(prefix="stepscope-", dir=temporary.on_disk())

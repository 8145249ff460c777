"""One file that holds frames and a little metadata, memory-mapped when read, and checked before it is trusted.

    buffers (each on a 64-byte edge) | metadata (JSON) | length of the metadata | xxh3-128 of all before | magic

Fixed-width columns are their raw buffers: reading one is pointing at the mapping, without a copy. (Polars reads IPC
files by copying them, and needs longer to load its code for that than all the rest of a warm open takes.) Texts are
JSON; whatever else there may be is an Arrow IPC file within the file.

The checksum covers every byte, and is taken over the very mapping that is then used, so truncation, flipped bits,
blocks of zeros and foreign files are all found out; it costs 10 to 20 ms per 100 MB.
"""

from __future__ import annotations

import io
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import xxhash

_MAGIC = b"stepscp1"
_TAIL = struct.Struct("<Q16s8s")
_ALIGN = 64

_RAW: dict[Any, str] = {
    pl.Int8: "<i1",
    pl.Int16: "<i2",
    pl.Int32: "<i4",
    pl.Int64: "<i8",
    pl.UInt8: "<u1",
    pl.UInt16: "<u2",
    pl.UInt32: "<u4",
    pl.UInt64: "<u8",
    pl.Float32: "<f4",
    pl.Float64: "<f8",
    pl.Boolean: "|b1",
}


class _Column(msgspec.Struct):
    """Where a column lies: `kind` is a NumPy type, `enum` (codes, by `categories`), `text` or `ipc`."""

    name: str
    kind: str
    at: int = 0
    size: int = 0
    width: str = ""  # NumPy type of an enum's codes
    categories: list[str] = []
    valid_at: int | None = None  # one byte per row, where some rows are null
    null: str | None = None  # every row is null: only the type is kept


class _Frame(msgspec.Struct):
    rows: int
    columns: list[_Column]


class _Content(msgspec.Struct):
    meta: dict[str, Any]
    frames: dict[str, _Frame]


class Damaged(Exception):
    """The file is not what was written."""


def write(file: BinaryIO, meta: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> None:
    """Write `frames` and `meta` (JSON types) to an empty file."""
    out = _Writer(file)
    packed = {name: _Frame(f.height, [_put(out, f[c]) for c in f.columns]) for name, f in frames.items()}
    text = msgspec.json.encode(_Content(dict(meta), packed))
    out.put(text)
    file.write(_TAIL.pack(len(text), out.digest(), _MAGIC))


def read(path: Path) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """Metadata and frames of the file; `Damaged` where a byte is not as written, `OSError` where there is no file."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise Damaged(path) from None
    if len(data) < _TAIL.size:
        raise Damaged(path)
    end = len(data) - _TAIL.size
    length, digest, magic = _TAIL.unpack_from(data, end)
    if magic != _MAGIC or length > end or xxhash.xxh3_128(memoryview(data)[:end]).digest() != digest:
        raise Damaged(path)
    content = msgspec.json.decode(data[end - length : end], type=_Content)
    if any(not 0 <= packed.rows <= len(data) for packed in content.frames.values()):
        raise Damaged(path)  # each row has a byte at least: a column that is all null needs none, and would take any
    frames = {
        name: pl.DataFrame([_get(data, c, packed.rows) for c in packed.columns])
        for name, packed in content.frames.items()
    }
    return content.meta, frames


class _Writer:
    """Appends aligned buffers and hashes what it appends."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self._at = 0

    def put(self, buffer: bytes | npt.NDArray[Any]) -> int:
        """Append a buffer; where it begins."""
        self._append(b"\0" * (-self._at % _ALIGN))
        at = self._at
        self._append(buffer if isinstance(buffer, bytes) else np.ascontiguousarray(buffer).view(np.uint8).data)
        return at

    def digest(self) -> bytes:
        digest: bytes = self._hash.digest()
        return digest

    def _append(self, buffer: bytes | memoryview) -> None:
        if len(buffer):
            self._file.write(buffer)
            self._hash.update(buffer)
            self._at += len(buffer)


def _put(out: _Writer, column: pl.Series) -> _Column:
    name, dtype = column.name, column.dtype
    if dtype == pl.String:
        texts = msgspec.json.encode(column.to_list())
        return _Column(name, "text", out.put(texts), len(texts))
    categories = dtype.categories.to_list() if isinstance(dtype, pl.Enum) else None
    if categories is None and dtype not in _RAW:
        stream = io.BytesIO()
        pl.DataFrame([column]).write_ipc(stream)
        blob = stream.getvalue()
        return _Column(name, "ipc", out.put(blob), len(blob))
    enum = categories is not None
    packed = _Column(name, "enum" if enum else _RAW[dtype], categories=categories or [])
    if len(column) and column.null_count() == len(column):
        packed.null = packed.kind
        return packed
    values = column.to_physical() if enum else column
    if column.null_count():
        packed.valid_at = out.put(column.is_not_null().to_numpy())
        values = values.fill_null(False if dtype == pl.Boolean else 0)
    array = values.to_numpy()
    packed.width = array.dtype.str
    packed.at, packed.size = out.put(array), array.nbytes
    return packed


def _get(data: mmap.mmap, packed: _Column, rows: int) -> pl.Series:
    if packed.kind == "text":
        texts = msgspec.json.decode(data[packed.at : packed.at + packed.size], type=list[str | None])
        return pl.Series(packed.name, texts, dtype=pl.String)
    if packed.kind == "ipc":
        return pl.read_ipc(io.BytesIO(data[packed.at : packed.at + packed.size])).to_series()
    dtype = pl.Enum(packed.categories) if packed.kind == "enum" else None
    if packed.null is not None:
        kind = dtype or _DTYPES[packed.kind]
        return pl.Series(packed.name, [None], dtype=kind).new_from_index(0, rows)
    values = _array(data, packed.width, packed.at, rows)
    if dtype is None:
        column = pl.Series(packed.name, values, dtype=_DTYPES[packed.kind])
    else:  # codes become an enum by looking them up: casts between the two differ from one Polars to the next
        categories = pl.Series(packed.name, packed.categories, dtype=dtype)
        column = categories.gather(values) if rows else pl.Series(packed.name, [], dtype=dtype)
    if packed.valid_at is None:
        return column
    valid = pl.Series(_array(data, "|b1", packed.valid_at, rows))
    return pl.select(pl.when(valid).then(column).alias(packed.name)).to_series()


def _array(data: mmap.mmap, width: str, at: int, rows: int) -> npt.NDArray[Any]:
    """The buffer at `at`, in place: the array (and what is made of it) keeps the mapping alive."""
    return np.frombuffer(data, np.dtype(width), rows, at) if rows else np.empty(0, np.dtype(width))


_DTYPES: dict[str, Any] = {kind: dtype for dtype, kind in _RAW.items()}

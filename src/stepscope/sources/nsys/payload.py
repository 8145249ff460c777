"""NCCL's NVTX payloads: what a call says of its communicator, size and partner.

A payload comes as a blob laid out by a schema in the export, or as JSON, or (in a default export) not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.sources.nsys.tables import Tables, field, text_field

#: Columns by the label that NCCL gives a field: labels are stable, numbers of schemas and fields are not.
_LABELS = {
    "NCCL communicator ID": "communicator",
    "Message size [bytes]": "bytes",
    "Bytes": "bytes",  # broadcast, send and recv, to NCCL 2.24
    "Peer rank": "peer",
    "Root": "peer",
    "Reduction operation": "reduction",
    "No. of ranks": "comm_size",
    "Rank": "comm_rank",
}
SCHEMA: dict[str, type[pl.DataType]] = {
    "communicator": pl.String,
    "bytes": pl.Int64,
    "peer": pl.Int64,
    "reduction": pl.String,
    "comm_size": pl.Int64,
    "comm_rank": pl.Int64,
}
#: NVTX's numbers of the entry types, as little-endian NumPy types.
_INTEGERS = ("<i2", "<u2", "<i4", "<u4", "<i8", "<u8")
_TYPES = dict(enumerate((*_INTEGERS, "<i8", "<u8", "<i1", "<u1", *_INTEGERS), start=3)) | {22: "<u8"}
#: Types from here on are schemas and enumerations of the export's own; NCCL has only the latter.
_FIRST_ENUM = 1 << 24
#: Number of payloads, schema, size and offset of the first: four 64-bit words.
_HEADER = 32
_REDUCTIONS = ("Sum", "Product", "Max", "Min", "Avg")


@dataclass(frozen=True)
class _Field:
    column: str
    offset: int
    dtype: str
    enum: dict[int, str] | None


def decode_payloads(tables: Tables, frame: pl.DataFrame, json_texts: list[str | None]) -> pl.DataFrame:
    """One row per row of `frame` (`domain_id`, `payload`), null where a call says nothing."""
    columns: dict[str, list[Any]] = {name: [None] * frame.height for name in SCHEMA}
    _from_blobs(tables, frame, columns)
    _from_json(json_texts, columns)
    columns["communicator"] = [None if number is None else f"0x{number:x}" for number in columns["communicator"]]
    return pl.DataFrame(columns, schema=SCHEMA, strict=False)


def _from_blobs(tables: Tables, frame: pl.DataFrame, columns: dict[str, list[Any]]) -> None:
    schemas = _schemas(tables)
    sizes = frame.select(size=pl.col("payload").bin.size(), domain=pl.col("domain_id")).with_row_index("at")
    for (size, domain), rows in sizes.filter(pl.col("size") > _HEADER).group_by("size", "domain", maintain_order=True):
        at = rows["at"].to_numpy()
        blobs = np.frombuffer(b"".join(frame["payload"].gather(at)), dtype=np.uint8).reshape(-1, int(size))
        schema_ids = _words(blobs, 8)
        starts = _words(blobs, 24)
        for schema, start in {(int(s), int(o)) for s, o in zip(schema_ids, starts, strict=True)}:
            mine = (schema_ids == schema) & (starts == start)
            for entry in schemas.get((domain, schema), ()):
                _store(columns[entry.column], at[mine], _values(blobs[mine], start, entry))


def _words(blobs: npt.NDArray[np.uint8], offset: int) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(blobs[:, offset : offset + 8]).view("<u8")[:, 0]


def _values(blobs: npt.NDArray[np.uint8], start: int, entry: _Field) -> list[Any]:
    """One field of every payload; only its own bytes, for what lies between fields is not initialized."""
    first = start + entry.offset
    width = np.dtype(entry.dtype).itemsize
    if first < 0 or first + width > blobs.shape[1]:
        return [None] * len(blobs)
    numbers: list[int] = np.ascontiguousarray(blobs[:, first : first + width]).view(entry.dtype)[:, 0].tolist()
    return numbers if entry.enum is None else [entry.enum.get(n, str(n)) for n in numbers]


def _store(column: list[Any], at: npt.NDArray[Any], values: list[Any]) -> None:
    for row, value in zip(at.tolist(), values, strict=True):
        column[row] = value


def _schemas(tables: Tables) -> dict[tuple[int | None, int | None], list[_Field]]:
    """Fields by (domain, schema). Rows repeat, once per process; a zero is exported as null."""
    key = field("domainId"), field("schemaId"), text_field("name")
    enums: dict[tuple[int | None, int | None], dict[int, str]] = {}
    for domain, enum, name, value in tables.rows("NVTX_PAYLOAD_ENUM_ENTRIES", *key, field("value")):
        enums.setdefault((domain, enum), {})[value or 0] = str(name)
    schemas: dict[tuple[int | None, int | None], dict[str, _Field]] = {}
    entries = tables.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", *key, field("type"), field("offset"))
    for domain, schema, name, kind, offset in entries:
        column = _LABELS.get(str(name))
        if column is None or kind is None:
            continue
        is_enum = kind >= _FIRST_ENUM
        dtype = "<i4" if is_enum else _TYPES.get(kind)
        if dtype is not None:
            words = enums.get((domain, kind), dict(enumerate(_REDUCTIONS))) if is_enum else None
            schemas.setdefault((domain, schema), {})[column] = _Field(column, offset or 0, dtype, words)
    return {key: list(fields.values()) for key, fields in schemas.items()}


def _from_json(texts: list[str | None], columns: dict[str, list[Any]]) -> None:
    """What the blobs left open. Calls that are alike say the same: each text is read once."""
    read = {text: _said(text) for text in set(texts) if text}
    for row, text in enumerate(texts):
        for column, value in read[text] if text else ():
            if columns[column][row] is None:
                columns[column][row] = value


def _said(text: str) -> list[tuple[str, Any]]:
    """Columns and values of one payload."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return []
    items = content.items() if isinstance(content, dict) else ()
    labelled = [(_LABELS[label], value) for label, value in items if label in _LABELS]
    return [(column, _reduction(value) if column == "reduction" else _number(value)) for column, value in labelled]


def _number(value: object) -> int | None:
    """Plain, or as text with thousands commas: versions differ."""
    try:
        return value if isinstance(value, int) else int(str(value).replace(",", ""), 0)
    except ValueError:
        return None


def _reduction(value: object) -> str:
    if isinstance(value, int) and 0 <= value < len(_REDUCTIONS):
        return _REDUCTIONS[value]
    return str(value).encode("utf-8", "replace").decode()

"""NCCL calls, from the ranges of its NVTX domain; their payloads say which communicator, size and partner.

A payload comes as a blob laid out by a schema in the export, or as JSON, or (in a default export) not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk, read_events
from stepscope.sources.nsys.mapping import NVTX
from stepscope.sources.nsys.ranges import DOMAIN, NCCL, PUSH_POP, START_END, close, domain_of, name_of
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import Tables, decode, field, text_field

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


_COLUMNS = (
    "start_ns",
    "end_ns",
    "tid",
    "kind",
    "nsys_type",
    "text",
    "text_id",
    "domain_id",
    "payload",
    "json",
    "json_id",
)
_INIT = "ncclCommInit"


def read_comms(export: Export, part: Part) -> Chunk:
    """Every call of NCCL, also those that say nothing of their communicator; groups' starts and ends too."""
    names = Names()
    frame = _calls(export, names)
    if frame is None:
        return Chunk(empty("comms", part))
    frame = frame.filter(pl.col("start_ns") >= 0)
    texts = [names.by_text(frame[c].cast(pl.Binary)) for c in ("communicator", "reduction")]
    return chunk(export, frame.with_columns(texts), "comms", part, names)


def has_comms(export: Export) -> bool:
    """Whether NCCL left ranges, by the names it registers; newer ones lack its prefix, but its domain has a name."""
    tables = export.tables
    names = [key for key, text in export.strings.containing("nccl").items() if text.startswith("nccl")]
    if names and not set(names).isdisjoint(key for (key,) in tables.distinct(NVTX.table, "textId")):
        return True
    named = tables.containing(NVTX.table, "text", NCCL, "eventType", "domainId")
    numbers = [number for text, kind, number in named if (text, kind) == (NCCL, DOMAIN) and isinstance(number, int)]
    kinds = tables.frame(NVTX.table, {"kind": field("eventType")}, only=("domainId", numbers))["kind"]
    return bool(kinds.is_in([PUSH_POP, START_END]).any())


def world_of(export: Export) -> dict[int, tuple[int, int]]:
    """(rank, ranks) of each process in its widest communicator, as NCCL's initialization said; by `proc`."""
    inits = [key for key, text in export.strings.containing(_INIT).items() if text.startswith(_INIT)]
    frame = _calls(export, Names(), only=("textId", inits)) if inits else None
    if frame is None:
        return {}
    places = frame.drop_nulls(["comm_rank", "comm_size"]).sort("comm_size", "start_ns", descending=[True, False])
    widest = places.unique("proc", keep="first", maintain_order=True).select("proc", "comm_rank", "comm_size")
    return {proc: (rank, size) for proc, rank, size in widest.iter_rows()}


def _calls(export: Export, names: Names, only: tuple[str, list[int]] | None = None) -> pl.DataFrame | None:
    """NCCL's ranges, all or `only` some, also from before the capture: communicators are made there."""
    only = only or ("domainId", [number for (number,) in export.tables.distinct(NVTX.table, "domainId") if number])
    frame = read_events(export, NVTX, _COLUMNS, only=only, early=True)
    if frame.is_empty():
        return None
    frame = close(frame.filter(pl.col("nsys_type").is_in([PUSH_POP, START_END])), export)
    frame = frame.with_columns(name_of(export, frame, names))
    frame = frame.filter(domain_of(export, frame, names) == names.intern(NCCL)).rename({"name": "op"})
    if frame.is_empty():
        return None
    json_texts = [
        decode(raw) if raw else (export.strings.get(at) if at is not None else None)
        for raw, at in frame.select("json", "json_id").iter_rows()
    ]
    frame = pl.concat([frame, decode_payloads(export.tables, frame, json_texts)], how="horizontal")
    return _with_membership(_with_depth(frame, names), names)


def _with_depth(frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """How many groups are open around each call; a group's own start and end count the groups around it.

    A capture can begin inside a group: ends without a start must not count below zero.
    """
    texts = names.series().to_list()
    starts = [at for at, text in enumerate(texts) if text.removeprefix("nccl") == "GroupStart"]
    ends = [at for at, text in enumerate(texts) if text.removeprefix("nccl") == "GroupEnd"]
    opened, closed = pl.col("op").is_in(starts).cast(pl.Int32), pl.col("op").is_in(ends).cast(pl.Int32)
    thread = ["proc", "tid"]
    floor = pl.min_horizontal(pl.col("level").cum_min().over(thread), pl.lit(0, dtype=pl.Int32))
    return (
        frame.sort("start_ns", maintain_order=True)
        .with_columns(level=(opened - closed).cum_sum().over(thread))
        .with_columns(depth=pl.col("level") - floor - opened)
    )


def _with_membership(frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Own rank and size are said once, when a communicator is made: they hold for all its calls.

    Only by initialization: a split says rank and size of the communicator that it splits.
    """
    texts = names.series().to_list()
    inits = [at for at, text in enumerate(texts) if text.startswith(_INIT)]
    key = ["proc", "communicator"]
    made = frame.filter(pl.col("op").is_in(inits)).drop_nulls([*key, "comm_rank", "comm_size"])
    made = made.select(*key, "comm_rank", "comm_size").unique(key, keep="last", maintain_order=True)
    return frame.drop("comm_rank", "comm_size").join(made, on=key, how="left", maintain_order="left")

"""Parquet directories: one file per table, as `nsys export --type=parquetdir` writes them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import polars as pl

from stepscope.errors import BadInput
from stepscope.sources.nsys.tables import RAW_DTYPE, Each, Field, Kind, Only, decode, no_rows, plain

#: The number of a row, as SQLite would have it: parquet files hold the rows in the same order.
_ROW = "rowid"


class ParquetTables:
    """One parquet directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread: dict[tuple[str, str], int] = {}
        self.soundness = None
        if not path.is_dir():
            raise BadInput(f"{path}: not a directory", "give the directory that nsys export --type=parquetdir wrote")
        self._files = {file.stem: file for file in sorted(path.glob("*.parquet")) if file.is_file()}
        self._schemas: dict[str, pl.Schema] = {}

    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        schema = self._schema(table)
        return frozenset(schema) | {_ROW} if schema else frozenset()

    def has(self, table: str) -> bool:
        if table not in self._files:
            return False
        with self._errors(table):
            return cast(int, self._scan(table).select(pl.len()).collect().item()) > 0

    def rows(self, table: str, *fields: Field) -> list[tuple[Any, ...]]:
        there = self.columns(table)
        if not there:
            return []
        names = [f.find(there) for f in fields]
        frame = self._read(table, list(dict.fromkeys(name for name in names if name is not None)))
        with self._errors(table):  # a time beyond what a calendar has
            columns = [[None] * frame.height if name is None else frame[name].to_list() for name in names]
        kinds = [f.kind for f in fields]
        return [tuple(map(plain, row, kinds)) for row in zip(*columns, strict=True)]

    def distinct(self, table: str, *columns: str) -> list[tuple[int | None, ...]]:
        fields = {column: Field((column,)) for column in columns}
        return cast("list[tuple[int | None, ...]]", self.frame(table, fields).unique().rows())

    def largest(self, table: str, column: str) -> int | None:
        return cast("int | None", self.frame(table, {column: Field((column,))})[column].max())

    def containing(self, table: str, column: str, text: str, *others: str) -> list[tuple[Any, ...]]:
        if column not in self._schema(table):
            return []
        fields = {column: Field((column,), "bytes"), **{other: Field((other,)) for other in others}}
        rows = self.frame(table, fields).filter(pl.col(column).bin.contains(text.encode()))
        return [(decode(row[0]), *row[1:]) for row in rows.iter_rows()]

    def frame(
        self, table: str, fields: Mapping[str, Field], *, each: Each | None = None, only: Only | None = None
    ) -> pl.DataFrame:
        there = self.columns(table)
        if not there or (only and only[0] not in there):
            return each(no_rows(fields)) if each else no_rows(fields)
        column_of = {alias: name for alias, f in fields.items() if (name := f.find(there)) is not None}
        keep = only[0] if only else None
        frame = self._read(table, list(dict.fromkeys([*column_of.values(), *([keep] if keep else [])])))
        if only:
            frame = frame.filter(_raw(frame[only[0]], "int").is_in(list(only[1])))
        columns = {alias: _raw(frame[name], fields[alias].kind).alias(alias) for alias, name in column_of.items()}
        for alias, name in column_of.items():
            if fields[alias].kind != "bytes" and (lost := columns[alias].null_count() - frame[name].null_count()):
                self.unread[table, name] = max(lost, self.unread.get((table, name), 0))
        frame = frame.select(
            columns[alias] if alias in column_of else f.missing().alias(alias) for alias, f in fields.items()
        )
        return each(frame) if each else frame

    def _schema(self, table: str) -> pl.Schema:
        if table not in self._files:
            return pl.Schema()
        if table not in self._schemas:
            with self._errors(table):
                self._schemas[table] = self._scan(table).collect_schema()
        return self._schemas[table]

    def _scan(self, table: str) -> pl.LazyFrame:
        return pl.scan_parquet(self._files[table], glob=False)

    def _read(self, table: str, columns: list[str]) -> pl.DataFrame:
        stored = [c for c in columns if c != _ROW]
        if _ROW in columns:
            return self._read(table, stored).with_row_index(_ROW, offset=1)
        with self._errors(table):
            try:
                return self._scan(table).select(columns).collect()
            except pl.exceptions.ComputeError as error:
                if "UTF-8" not in str(error):
                    raise
                text = [c for c in columns if self._schema(table)[c] == pl.String]
                return pl.read_parquet(io.BytesIO(_as_bytes(self._files[table], text)), columns=columns)

    @contextmanager
    def _errors(self, table: str) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(
                f"{self._files[table]}: cannot be read ({reason})", "copy it again or export the report again"
            ) from error


def _raw(column: pl.Series, kind: Kind) -> pl.Series:
    """A column in its raw type, by the rules of `tables`: unsigned values keep their bits, as SQLite stores them."""
    dtype = column.dtype
    if kind == "bytes":
        if dtype in (pl.String, pl.Binary):
            return column.cast(pl.Binary).fill_null(b"")
        if dtype.is_numeric():
            return column.cast(pl.String).cast(pl.Binary).fill_null(b"")
    if not dtype.is_numeric():
        return pl.Series(column.name, [b"" if kind == "bytes" else None], RAW_DTYPE[kind]).new_from_index(
            0, len(column)
        )
    if kind == "real":
        return column.cast(pl.Float64, strict=False)
    if dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    whole = column.cast(pl.Int64, strict=False)
    return whole.set((whole.cast(dtype) != column).fill_null(False), None) if dtype.is_float() else whole


def _as_bytes(file: Path, columns: Sequence[str]) -> bytes:
    """The file with the given text columns declared as plain bytes.

    nsys declares binary payloads as text, and text may not be UTF-8; readers refuse both. The declaration is in the
    footer: within a column's entry, `25 00` is the converted type UTF8 and `4C 1C 00 00` the logical type STRING
    (Thrift's compact protocol, fields 6 and 10). BSON, whose codes are as long, is read as plain bytes.
    """
    data = bytearray(file.read_bytes())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[start:-8])
    for column in columns:
        entry = bytes([len(column)]) + column.encode()
        footer = footer.replace(entry + b"\x25\x00\x4c\x1c\x00\x00", entry + b"\x25\x28\x4c\xdc\x00\x00")
    # The Arrow schema, kept as metadata, would overrule the footer.
    data[start:-8] = footer.replace(b"ARROW:schema", b"-----:schema")
    return bytes(data)

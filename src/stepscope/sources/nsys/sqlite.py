"""SQLite exports, read strictly: nothing is ever written to the file or next to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import polars as pl

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import cores
from stepscope.model.spill import joined
from stepscope.sources.nsys.paged import NotPlain, Paged, RowOrder, Soundness
from stepscope.sources.nsys.tables import RAW_DTYPE, Each, Field, Kind, Only, decode, literal, no_rows, plain

MAGIC = b"SQLite format 3\0"
#: Rows per Arrow batch: large enough that the cost per batch vanishes, small enough to stay in the CPU's cache.
_BATCH_ROWS = 65_536
#: Rows per range: one range is held raw (8 bytes a value) while it is converted.
_RANGE_ROWS = 262_144
#: Row ids can be sparse (string ids are row ids): their span says little about the number of rows.
_MAX_RANGES = 1024
_ALL_ROWS = " WHERE 1"
#: What the row id is called among the columns that were asked for.
_ROW_ID = "row id"


def is_sqlite(path: Path) -> bool:
    """Whether the file begins like an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class SqliteTables:
    """One SQLite export."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread: dict[tuple[str, str], int] = {}
        self._uri = address(path)
        self.soundness = Soundness(path, self._uri)
        self._paged = Paged(path, self._query, cores.threads())
        self._columns: dict[str, frozenset[str]] = {}
        kinds = {str(name): kind for name, kind in self._query("SELECT name, type FROM sqlite_master")}
        self._names = frozenset(name for name, kind in kinds.items() if kind == "table")
        self._views = frozenset(name for name, kind in kinds.items() if kind == "view")

    def check_small(self) -> None:
        """Look for damage before anything is read, as far as that takes no time."""
        self.soundness.check_small(self._names, self._few)

    def _few(self, table: str) -> bool:
        """Whether a table is small, by its row ids."""
        try:
            return len(self._ranges(table)) <= 2
        except BadInput:  # reading it says more
            return False

    def names(self) -> frozenset[str]:
        return self._names

    def columns(self, table: str) -> frozenset[str]:
        if not self._is_there(table):
            return frozenset()
        if table not in self._columns:
            info = self._query(f"SELECT name FROM pragma_table_info({literal(table)})")
            # The number of a row is a column too, though not a declared one.
            self._columns[table] = frozenset(str(name) for (name,) in info) | {"rowid"}
        return self._columns[table]

    def has(self, table: str) -> bool:
        return self._is_there(table) and bool(self._query(f"SELECT 1 FROM {_quote(table)} LIMIT 1"))

    def _is_there(self, table: str) -> bool:
        if table in self._views:  # nsys writes none, and one can be endless
            raise BadInput(f"{self.path}: {table} is a view, not a table of an export", "export the report again")
        return table in self._names

    def rows(self, table: str, *fields: Field) -> list[tuple[Any, ...]]:
        there = self.columns(table)
        if not there:
            return []
        wanted = ", ".join("NULL" if (name := f.find(there)) is None else _quote(name) for f in fields)
        kinds = [f.kind for f in fields]
        return [tuple(map(plain, row, kinds)) for row in self._query(f"SELECT {wanted} FROM {_quote(table)}")]

    def distinct(self, table: str, *columns: str) -> list[tuple[int | None, ...]]:
        there = self.columns(table)
        if not there:
            return []
        wanted = ", ".join(_quote(c) if c in there else "NULL" for c in columns)
        queries = [f"SELECT DISTINCT {wanted} FROM {_quote(table)}{where}" for where in self._ranges(table)]
        with ThreadPoolExecutor(cores.threads()) as pool:
            rows = {row for part in pool.map(self._query, queries) for row in part}
        return cast("list[tuple[int | None, ...]]", [tuple(plain(v, "int") for v in row) for row in rows])

    def largest(self, table: str, column: str) -> int | None:
        if column not in self.columns(table):
            return None
        whole = _guarded(column, "int")
        return cast("int | None", self._query(f"SELECT max({whole}) FROM {_quote(table)}")[0][0])

    def containing(self, table: str, column: str, text: str, *others: str) -> list[tuple[Any, ...]]:
        there = self.columns(table)
        if column not in there:
            return []
        wanted = ", ".join(_quote(c) if c in there else "NULL" for c in (column, *others))
        kinds: list[Kind] = ["bytes", *["int"] * len(others)]  # type: ignore[list-item]
        rows = self._query(f"SELECT {wanted} FROM {_quote(table)} WHERE instr({_quote(column)}, {literal(text)})")
        return [tuple(map(plain, row, kinds)) for row in rows]

    def frame(
        self, table: str, fields: Mapping[str, Field], *, each: Each | None = None, only: Only | None = None
    ) -> pl.DataFrame:
        there = self.columns(table)
        columns = {alias: (name, f) for alias, f in fields.items() if (name := f.find(there)) is not None}
        absent = [f.missing().alias(alias) for alias, f in fields.items() if alias not in columns]

        def shaped(raw: pl.DataFrame) -> pl.DataFrame:
            if raw.is_empty():  # without a row the driver has nothing to take the types from
                raw = no_rows(fields)
            elif absent:
                raw = raw.with_columns(absent).select(list(fields))
            return each(raw) if each else raw

        if not there or (only and only[0] not in there):
            return shaped(no_rows(fields))
        if not only and columns and all(f.kind == "int" for _, f in columns.values()):
            with suppress(NotPlain, OSError):
                return self._from_pages(table, {alias: name for alias, (name, _) in columns.items()}, shaped)
        return self._by_driver(table, columns, shaped, only)

    def _from_pages(self, table: str, columns: Mapping[str, str], shaped: Each) -> pl.DataFrame:
        order = RowOrder()
        whole = self._paged.frame(table, columns, shaped, order)
        self.soundness.check(order)
        return whole

    def _by_driver(
        self, table: str, found: Mapping[str, tuple[str, Field]], shaped: Each, only: Only | None
    ) -> pl.DataFrame:
        """What is not plain integers, or of a file that SQLite must read."""
        ranges = self._ranges(table)
        also = f" AND {_quote(only[0])} IN ({', '.join(map(str, only[1]))})" if only else ""
        order = None if only or ranges == [_ALL_ROWS] else RowOrder()
        columns = {**found, _ROW_ID: ("rowid", Field(("rowid",)))} if order else found
        unread: list[tuple[str, int]] = []  # ranges are read by several threads: appending is safe, adding up is not

        def read(where: str) -> pl.DataFrame:
            raw = self._typed(table, columns, where + also, unread)
            if order and raw.height:
                order.saw(raw[_ROW_ID].to_numpy())
            return shaped(raw.drop(_ROW_ID, strict=False))

        if len(ranges) < 2:
            whole = read(ranges[0]) if ranges else shaped(pl.DataFrame())
        else:
            with ThreadPoolExecutor(cores.threads()) as pool:
                whole = joined(progress.mapped(pool, read, ranges))
        if order:
            self.soundness.check(order)
        for name in {name for name, _ in unread}:
            count = sum(lost for column, lost in unread if column == name)
            self.unread[table, name] = max(count, self.unread.get((table, name), 0))
        return whole

    def _typed(
        self, table: str, columns: Mapping[str, tuple[str, Field]], where: str, unread: list[tuple[str, int]]
    ) -> pl.DataFrame:
        """A range of rows, in the types that were asked for: as they are, which is fast, else value by value."""
        try:
            raw = self._arrow(f"SELECT {_wanted(columns, _expression)} FROM {_quote(table)}{where}")
        except BadInput:  # of several types behind the first batch, or damaged: the second reading tells
            raw = None
        if raw is not None and (
            raw.is_empty() or all(raw.schema[a] == RAW_DTYPE[f.kind] for a, (_, f) in columns.items())
        ):
            return raw
        raw = self._arrow(f"SELECT {_wanted(columns, _guarded_field)} FROM {_quote(table)}{where}")
        counts = ", ".join(f"count({_quote(name)})" for name, _ in columns.values())
        (present,) = self._query(f"SELECT {counts or 'NULL'} FROM {_quote(table)}{where}")
        for (alias, (name, f)), count in zip(columns.items(), present, strict=False):
            lost = int(count or 0) - (raw.height - raw[alias].null_count()) if f.kind != "bytes" else 0
            if lost > 0:
                unread.append((name, lost))
        return raw.with_columns(pl.col(a).cast(RAW_DTYPE[f.kind]) for a, (_, f) in columns.items())

    def _ranges(self, table: str) -> list[str]:
        """Conditions that split the table into ranges of rows, in file order."""
        try:
            # Two subqueries: each is a walk to one end of the tree, while min and max together would scan the table.
            ((low, high),) = self._query(
                f"SELECT (SELECT min(rowid) FROM {_quote(table)}), (SELECT max(rowid) FROM {_quote(table)})"
            )
        except BadInput:
            return [_ALL_ROWS]  # some tables have no row ids
        if low is None or high is None:
            return []
        first, last = int(low), int(high)
        span = last - first + 1
        size = max(16_384, min(_RANGE_ROWS, -(-span // cores.threads())), span // _MAX_RANGES)
        return [f" WHERE rowid BETWEEN {at} AND {at + size - 1}" for at in range(first, last + 1, size)]

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with self._errors(), closing(sqlite3.connect(self._uri, uri=True)) as connection:
            connection.text_factory = decode
            return connection.execute(sql).fetchall()

    def _arrow(self, sql: str) -> pl.DataFrame:
        import adbc_driver_manager
        import adbc_driver_sqlite

        with self._errors():
            database = adbc_driver_sqlite.connect(self._uri)
            with (
                database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
                statement.set_sql_query(sql)
                stream, _ = statement.execute_query()
                return pl.DataFrame(stream)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Failures of either driver as one line for the user: the only cause left here is the file."""
        try:
            yield
        except BadInput:
            raise
        except Exception as error:
            # Of a damaged file SQLite's own message may not even be text.
            expected = (sqlite3.Error, pl.exceptions.PolarsError, UnicodeDecodeError)
            if not isinstance(error, expected) and "adbc" not in type(error).__module__:
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BadInput(
                f"{self.path}: the SQLite database is damaged ({reason})", "copy it again or export the report again"
            ) from error


def address(path: Path) -> str:
    """The read-only address of the file; BadInput where its header says that it cannot be read whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})", "check the path and its permissions") from error
    if size == 0:
        raise BadInput(f"{path}: the file is empty", "export the report again")
    if not header.startswith(MAGIC) or len(header) < 100:
        raise BadInput(f"{path}: not an SQLite database", "give an nsys export: nsys export --type=sqlite REPORT")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    # The page count is valid only where two counters of the header agree; older writers left it at zero.
    whole = pages * (65536 if page == 1 else page) if header[24:28] == header[92:96] else 0
    if size < whole:
        raise BadInput(
            f"{path}: the file is cut short ({size} of {whole} bytes)", "copy it again or export the report again"
        )
    # A database in WAL mode makes even a reader create files next to it, unless it is declared immutable.
    wal = header[18:20] != b"\x01\x01"
    return path.absolute().as_uri() + ("?mode=ro&immutable=1" if wal else "?mode=ro")


def _wanted(columns: Mapping[str, tuple[str, Field]], expression: Callable[[str, Field], str]) -> str:
    return ", ".join(f"{expression(name, f)} AS {_quote(alias)}" for alias, (name, f) in columns.items()) or "NULL"


def _expression(column: str, field: Field) -> str:
    # The driver takes a column's type from its first batch: text and blobs must not begin as NULL.
    return _quote(column) if field.kind == "int" else _guarded_field(column, field)


def _guarded_field(column: str, field: Field) -> str:
    return _guarded(column, field.kind)


def _guarded(column: str, kind: Kind) -> str:
    """The value where it is of the kind, by the rules of `tables`; else NULL."""
    name = _quote(column)
    if kind == "bytes":
        return f"COALESCE(CAST({name} AS BLOB), x'')"
    if kind == "real":
        return f"CASE WHEN typeof({name}) IN ('integer', 'real') THEN CAST({name} AS REAL) END"
    # Of a float beyond 64 bits the nearest integer is another number, and of text it is 0.
    return (
        f"CASE typeof({name}) WHEN 'integer' THEN {name}"
        f" WHEN 'real' THEN CASE WHEN CAST({name} AS INTEGER) = {name} THEN CAST({name} AS INTEGER) END END"
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

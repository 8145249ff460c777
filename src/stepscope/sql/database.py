"""The database of one query: parsed, refused unless it only reads, and answered from the tables that it mentions.

It runs in a process of its own (`stepscope.sql.worker`): a function of DuckDB that does not look whether it is to stop
can only be ended with its process. Files and settings are out of its reach, and its transaction cannot write: what the
parser let through by mistake would still find nothing to harm (docs/decisions/0030-sql-reads-only.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import polars as pl

from stepscope.errors import BadInput
from stepscope.sql.macros import MACROS
from stepscope.sql.statement import Query, said
from stepscope.sql.values import Column, frame_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: What a version before this cannot do: take Arrow's streams without pyarrow.
LEAST_VERSION = 2
#: Rows that are fetched together: as Python's objects they take ten times the room.
_BATCH_ROWS = 100_000
#: Beyond DuckDB's own limit, for what it does not count: the interpreter, its libraries, rows as Python's objects; and
#: the stack of each of its threads.
_BESIDE, _PER_THREAD = 768 << 20, 16 << 20
#: Without files there is nothing to read, to attach or to install.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # It takes a registered table for one row, and would look through all of it for every row of another.
    "asof_loop_join_threshold": 0,
}


class TooLarge(Exception):
    """The query needs more memory than it has."""


@contextmanager
def database(spill: str = "") -> Iterator[DuckDBPyConnection]:
    """An empty one; it may put what does not fit into memory into the folder `spill`."""
    import duckdb

    connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": spill})
    try:
        yield connection
    except (duckdb.OutOfMemoryException, MemoryError):
        raise TooLarge from None
    except duckdb.Error as error:
        if "allocate" in str(error).lower() or "bad_alloc" in str(error):
            raise TooLarge from None
        raise BadInput(f"the query: {said(error)}", "`SELECT * FROM columns` lists tables and columns") from None
    finally:
        connection.close()


def answer(
    connection: DuckDBPyConnection, asked: Query, tables: Mapping[str, pl.DataFrame], memory: int, limit: int
) -> pl.DataFrame:
    """The rows of a query of these tables, one more than the limit where there are more (0 for all)."""
    for name, frame in tables.items():
        connection.register(name, _Stream(frame))
    for macro in MACROS:
        if macro.name in asked.functions:
            connection.execute(f"CREATE MACRO {macro.call} AS {macro.body}")
    connection.execute(f"SET memory_limit = '{memory} bytes'")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")
    with _bounded(memory):
        return _rows(connection, asked, limit)


class _Stream:
    """A frame by Arrow's interface alone. DuckDB would take a Polars frame by way of pyarrow, which is not needed."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


@contextmanager
def _bounded(memory: int) -> Iterator[None]:
    """Functions allocate what DuckDB does not count (`repeat('x', 1000000000)`): here the system refuses it."""
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = memory + _BESIDE + _PER_THREAD * (os.cpu_count() or 1)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_least(most, before[0]), before[1]))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _least(wanted: int, limit: int) -> int:
    """The smaller of two limits, of which the second may be none."""
    return wanted if limit < 0 else min(wanted, limit)


def _rows(connection: DuckDBPyConnection, asked: Query, limit: int) -> pl.DataFrame:
    """The rest is not even computed where it need not be."""
    if asked.explains:
        plans = "\n".join(str(row[-1]) for row in connection.execute(asked.text).fetchall())
        return pl.DataFrame({"plan": plans.splitlines()})
    described = connection.sql(asked.text)
    _refuse_twice(described.columns)
    columns = [Column.of(name, kind) for name, kind in zip(described.columns, described.types, strict=True)]
    connection.execute(_with_texts(asked.text, columns))
    wanted = limit + 1 if limit else sys.maxsize
    frames = [frame_of(columns, [])]
    while rows := connection.fetchmany(min(wanted, _BATCH_ROWS)):
        frames.append(frame_of(columns, rows))
        wanted -= len(rows)
    return pl.concat(frames, how="vertical_relaxed")


def _refuse_twice(names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"the query: two columns are called {twice}", "name one of them with AS")


def _with_texts(text: str, columns: Sequence[Column]) -> str:
    """What answers have no type for comes as DuckDB writes it: Python would round it, or could not hold it."""
    if all(column.type is not None for column in columns):
        return text
    return f"SELECT {', '.join(column.selected for column in columns)} FROM (\n{_unended(text)}\n) AS answer"


def _unended(text: str) -> str:
    """One statement without the semicolon after it."""
    import duckdb

    code = text.encode()  # the tokenizer counts bytes
    end = next((at for at, _ in duckdb.tokenize(text) if code[at : at + 1] == b";"), len(code))
    return code[:end].decode()

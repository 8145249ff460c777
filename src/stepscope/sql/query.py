"""A query of a profile: parsed, refused unless it only reads, and answered from the tables that it mentions.

Every query gets a database of its own in memory, whose tables are the profile's frames as they lie there (Arrow's
stream, without a copy). What does not fit into the memory that the budget leaves it, DuckDB puts into a temporary
folder. Other files and settings are out of its reach, and its transaction cannot write: what the parser let
through by mistake would still find nothing to harm (docs/decisions/0030-sql-reads-only.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from stepscope.errors import BadInput, CannotAnswer
from stepscope.files import budget, temporary
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.units import size
from stepscope.sql.catalogue import catalogue
from stepscope.sql.macros import MACROS
from stepscope.sql.statement import Query, parse, said
from stepscope.sql.values import frame_of, is_nested

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

#: How often to look whether the user wants to stop.
_LOOK_S = 0.1
#: What a version before this cannot do: take Arrow's streams without pyarrow.
_LEAST = 2
#: So much of what the budget leaves is DuckDB's: rows that come back are ours.
_SHARE = 0.75
#: It does not get along with less.
_LEAST_BYTES = 64 << 20
#: Where nothing says what there is, it may take all.
_MOST_BYTES = 1 << 50
#: Rows that are fetched together: as Python's objects they take ten times the room.
_BATCH_ROWS = 100_000
#: Without files there is nothing to read, to attach or to install.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def query(
    profile: Profile,
    text: str,
    *,
    limit: int = 0,
    seconds: float | None = None,
    answers: Mapping[str, pl.DataFrame] | None = None,
) -> Result:
    """The rows of a query, the first `limit` of them (0 for all); a note says where there are more.

    One that runs for more than `seconds` is stopped. `answers` are further tables, by name: rows of analyses.
    """
    if limit < 0:
        raise BadInput(f"--limit {limit}", "give how many rows to show; 0 for all")
    with _database() as connection:
        asked = parse(connection, text)
        notes = _registered(connection, profile, asked, answers or {})
        rows = _interruptible(connection, lambda: _rows(connection, asked, limit), seconds)
    if limit and rows.height > limit:
        rows = rows.head(limit)
        notes.append(
            Note(
                "first-rows",
                f"the first {limit:,} rows, and there are more: --limit 0 gives all, LIMIT and OFFSET in the query page"
                " through them",
            )
        )
    return Result(rows, notes=notes)


@contextmanager
def _database() -> Iterator[DuckDBPyConnection]:
    try:
        import duckdb
    except ImportError:
        raise BadInput("sql needs DuckDB", "pip install 'stepscope[sql]'") from None
    if int(duckdb.__version__.partition(".")[0]) < _LEAST:
        raise BadInput(
            f"sql needs DuckDB {_LEAST}, and {duckdb.__version__} is installed", "pip install -U 'stepscope[sql]'"
        )
    folder = _spill_folder()
    connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": str(folder or "")})
    try:
        yield connection
    except duckdb.OutOfMemoryException:
        raise BadInput(
            f"the query needs more than the {size(budget.total())} of the budget", "give more with --memory"
        ) from None
    except duckdb.Error as error:
        raise BadInput(f"the query: {said(error)}", "`SELECT * FROM columns` lists tables and columns") from None
    finally:
        connection.close()
        if folder is not None:
            temporary.drop(folder)


def _spill_folder() -> Path | None:
    """Where the query may put what does not fit into memory; None where nothing can be written."""
    try:
        return temporary.temporary_folder()
    except (BadInput, OSError):
        return None


def _registered(
    connection: DuckDBPyConnection, profile: Profile, asked: Query, answers: Mapping[str, pl.DataFrame]
) -> list[Note]:
    """What the query mentions is there afterwards, and nothing can be changed any more."""
    known = catalogue()
    called = [macro for macro in MACROS if macro.name in asked.functions]
    notes: list[Note] = []
    for name in sorted(asked.tables.union(*(macro.reads for macro in called))):
        if name in answers:
            known_types = answers[name].with_columns(pl.col(pl.Null).cast(pl.String))  # DuckDB refuses what is all null
            connection.register(name, _Stream(known_types))
            continue
        if name not in known:
            if name in asked.named:
                continue
            raise BadInput(f"no table {name}", f"there are {', '.join((*answers, *known))}")
        try:
            frame, about = known[name].make(profile)
        except CannotAnswer:
            if name in asked.named:  # a WITH of that name, most likely
                continue
            raise
        connection.register(name, _Stream(frame))
        notes += about
    for macro in called:
        connection.execute(f"CREATE MACRO {macro.call} AS {macro.body}")
    left = int(_SHARE * (budget.total() - budget.used()))
    connection.execute(f"SET memory_limit = '{min(max(left, _LEAST_BYTES), _MOST_BYTES)} bytes'")
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")
    return list(dict.fromkeys(notes))


class _Stream:
    """A frame by Arrow's interface alone. DuckDB would take a Polars frame by way of pyarrow, which is not needed."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def _interruptible(connection: DuckDBPyConnection, work: Callable[[], T], seconds: float | None) -> T:
    """`work` in a thread: while it computes, DuckDB does not look whether the user pressed Ctrl-C."""
    until = None if seconds is None else time.monotonic() + seconds
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            while not wait([done], timeout=_LOOK_S).done:  # a wait without an end is not woken by Ctrl-C either
                if until is not None and time.monotonic() > until:
                    raise BadInput(f"the query was stopped after {seconds:g} s", "ask for less, or aggregate first")
            return done.result()
        except BaseException:
            connection.interrupt()
            raise


def _rows(connection: DuckDBPyConnection, asked: Query, limit: int) -> pl.DataFrame:
    """The rows, one more than the limit where there are more: the rest is not even computed where it need not be."""
    connection.execute(asked.text)
    columns = [(str(c[0]), str(c[1])) for c in connection.description or ()]
    names = [name for name, _ in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"the query: two columns are called {twice}", "name one of them with AS")
    if asked.explains:
        plans = "\n".join(str(row[-1]) for row in connection.fetchall())
        return pl.DataFrame({"plan": plans.splitlines()})
    wanted = limit + 1 if limit else sys.maxsize
    if any(is_nested(kind) for _, kind in columns):  # the type of these is known when all of them are
        return frame_of(columns, connection.fetchmany(wanted) if limit else connection.fetchall())
    frames = [frame_of(columns, [])]
    while rows := connection.fetchmany(min(wanted, _BATCH_ROWS)):
        frames.append(frame_of(columns, rows))
        wanted -= len(rows)
    return pl.concat(frames, how="vertical_relaxed")

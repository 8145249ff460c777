"""A query of a profile: the tables that it mentions are made, and a process of its own answers from them.

That process can be ended whatever it is at, and it may take no more memory than the budget leaves: so a query stops at
its time limit, at Ctrl-C, and where nobody wants its answer any more (docs/decisions/0047-sql-in-a-process.md).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import BadInput, CannotAnswer, StepscopeError, extra
from stepscope.files import budget, temporary
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import Result
from stepscope.model.units import size
from stepscope.sql import process
from stepscope.sql.catalogue import catalogue
from stepscope.sql.macros import MACROS
from stepscope.sql.tops import HIDDEN

#: What a version before this cannot do: take Arrow's streams without pyarrow.
_LEAST_VERSION = 2
#: So much of what the budget leaves is DuckDB's: rows that come back are ours.
_SHARE = 0.75
#: It does not get along with less.
_LEAST_BYTES = 64 << 20
#: Where nothing says what there is, it may take all.
_MOST_BYTES = 1 << 50


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
    if seconds is not None and not seconds > 0:
        raise BadInput(f"--timeout {seconds:g}", "give seconds, more than 0")
    _need_duckdb()
    with _folder() as folder:
        rows, notes = _answered(profile, text, limit, seconds, answers or {}, folder)
    if limit and rows.height > limit:
        rows = rows.head(limit)
        notes.append(noted("first-rows", rows=limit))
    return Result(rows, notes=notes)


def prepare() -> None:
    """A query follows: what takes a while to start may start now."""
    _need_duckdb()
    process.prepare()


def _need_duckdb() -> None:
    try:
        import duckdb
    except ImportError:
        raise BadInput("sql needs DuckDB", extra("sql")) from None
    if int(duckdb.__version__.partition(".")[0]) < _LEAST_VERSION:
        raise BadInput(
            f"sql needs DuckDB {_LEAST_VERSION}, and {duckdb.__version__} is installed",
            extra("sql").replace("install", "install -U", 1),
        )


@contextmanager
def _folder() -> Iterator[Path]:
    """Where tables go to the process and rows come from it, and where it may put what does not fit into memory."""
    folder = temporary.temporary_folder()
    try:
        yield folder
    finally:
        temporary.drop(folder)


def _answered(
    profile: Profile,
    text: str,
    limit: int,
    seconds: float | None,
    answers: Mapping[str, pl.DataFrame],
    folder: Path,
) -> tuple[pl.DataFrame, list[Note]]:
    failed: StepscopeError | None = None
    notes: list[Note] = []
    left = int(_SHARE * (budget.total() - budget.used()))
    try:
        with process.worker() as one:
            one.begin()
            until = None if seconds is None else time.monotonic() + seconds
            one.send(text=text, folder=str(folder))
            reply = one.reply(seconds)
            if "tables" in reply:
                try:
                    tables, notes = _tables(profile, reply, answers)
                except StepscopeError as error:
                    failed = error
                    one.send()
                else:
                    files = {name: _written(frame, folder / f"{name}.arrow") for name, frame in tables.items()}
                    memory = min(max(left, _LEAST_BYTES), _MOST_BYTES)
                    one.send(tables=files, memory=memory, limit=limit)
                    reply = one.reply(None if until is None else max(until - time.monotonic(), 0))
    except TimeoutError:
        hint = "ask for less, aggregate first, or give more with --timeout"
        raise BadInput(f"the query was stopped after {seconds:g} s", hint) from None
    except BrokenPipeError as gone:
        reply = {"gone": str(gone)}
    if failed is not None:
        raise failed
    return _rows(reply, folder), notes


def _rows(said: dict[str, Any], folder: Path) -> pl.DataFrame:
    """What the process says at last: rows, or why there are none."""
    if "rows" in said:
        return pl.read_ipc((folder / said["rows"]).read_bytes())
    if "error" in said:
        raise BadInput(said["error"], said["hint"])
    if "too_large" in said:
        raise BadInput(
            f"the query needs more than the {size(budget.total())} of the budget", "ask for less, or give more --memory"
        )
    if "gone" in said:  # where an allocation fails in the midst of a function, too
        raise BadInput(
            f"the query ended its process ({said['gone']}): most often it needs more than the {size(budget.total())}"
            " of the budget",
            "ask for less, or give more --memory",
        )
    raise RuntimeError(said["unexpected"])


def _written(frame: pl.DataFrame, file: Path) -> str:
    known_types = frame.with_columns(pl.col(pl.Null).cast(pl.String))  # DuckDB refuses what is all null
    known_types.write_ipc(file, compression="uncompressed")
    return file.name


def _tables(
    profile: Profile, mentioned: Mapping[str, Collection[str]], answers: Mapping[str, pl.DataFrame]
) -> tuple[dict[str, pl.DataFrame], list[Note]]:
    """What the query mentions, and the tables that its functions read."""
    tables = catalogue()
    frames: dict[str, pl.DataFrame] = {}
    notes: list[Note] = []
    for name in mentioned["tables"]:
        if name in answers:
            frames[name] = answers[name]
            continue
        if name not in tables:
            if name in mentioned["named"]:
                continue
            raise BadInput(f"no table {name}", f"there are {', '.join((*answers, *tables))}")
        try:
            frames[name], about = tables[name].make(profile)
        except CannotAnswer:
            if name in mentioned["named"]:  # a WITH of that name, most likely
                continue
            raise
        notes += about
    for macro in MACROS:
        if macro.name in mentioned["functions"]:
            frames |= {name: profile.once(HIDDEN[name]) for name in macro.reads}
    return frames, list(dict.fromkeys(notes))

"""A question of your own, in SQL: the profile's tables, windows, exposures and meetings, read with DuckDB.

stepscope sql traces/ 'SELECT rank, count(*) AS kernels FROM ops GROUP BY rank'. QUERY is the last argument: one
statement, a file that ends in .sql, or - for standard input. `SELECT * FROM tables` and `SELECT * FROM columns` list
what there is; docs/cookbook.md has queries to start from. Only SELECT (WITH), EXPLAIN and DESCRIBE pass: nothing is
written, and no other file is read. Only tables that the query mentions are read. It needs the extra `sql`; if it is
missing, the command says how to install it.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import AnyProfiles, Output, RankNumbers, Reading
from stepscope.errors import BadInput
from stepscope.model.option import Shell
from stepscope.model.times import nanoseconds

#: So many rows are shown unless the user says otherwise: a query is easily written that has millions.
_LIMIT = 1000
#: A query that takes longer is stopped: most likely it joins every row with every other.
_LONGEST = "120s"
#: How a query begins.
_BEGIN = re.compile(r"[\s(]*(select|with|from|describe|explain|pivot|unpivot|values|table|summarize|show)\b", re.I)


def _sql(
    profile: AnyProfiles,
    query: Annotated[str, "", Shell(metavar="QUERY")],
    *,
    limit: Annotated[int, "The first N rows; 0 for all.", Shell(metavar="N")] = _LIMIT,
    rank: RankNumbers = None,
    timeout: Annotated[str, "Stop a query that takes longer.", Shell(metavar="TIME")] = _LONGEST,
    output: Output,
    reading: Reading,
) -> None:
    from stepscope import api

    target = output.target
    seconds = nanoseconds(timeout, "--timeout", plain="s") / 1e9
    text = _text(query)
    early = next((given for given in profile if _is_query(given)), None)
    if early is not None and Path(query).exists():
        files = shlex.join([given for given in (*profile, query) if given != early])
        raise BadInput("the query comes last", f"stepscope sql {files} {shlex.quote(early)}")
    if not profile:
        raise BadInput("one argument is missing", "give PROFILE..., then the query: stepscope sql PROFILE 'SELECT …'")
    with progress.shown():
        api.prepare_sql()
        opened = reading.open(profile)
        target.spare([*map(Path, profile), *opened.paths])
        result = opened.sql(text, limit=limit, rank=rank, seconds=seconds)
    target.write(result)


def _is_query(text: str) -> bool:
    return _BEGIN.match(text) is not None and not Path(text[:200]).exists()


def _text(query: str) -> str:
    if query == "-":
        return sys.stdin.read()
    if "\n" not in query and query.lower().endswith(".sql") and " " not in query:
        try:
            return Path(query).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            raise BadInput(f"{query}: cannot read it", "give a file with one query, or the query itself") from None
    return query


command = command_of(_sql)

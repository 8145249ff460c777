"""Queries that are typed into the page: their first rows, and where on the timeline each of them lies."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.model.command_line import command_line
from stepscope.web.messages import SqlData
from stepscope.web.scene import Served

#: Rows that a page shows, seconds that a query may take, and letters that it may have (the guard takes 8 KiB).
MOST_ROWS, MOST_SECONDS, MOST_QUERY = 200, 30.0, 4_000
#: The largest whole number that a double holds with all before it.
_EXACT = 2**53


def answered(scene: Served, query: str) -> SqlData:
    """What `stepscope sql` gives: columns, rows, notes; a row with a rank and a start has a place on the timeline."""
    result = scene.profile.sql(query, limit=MOST_ROWS, seconds=MOST_SECONDS)
    rows = result.rows
    return {
        "columns": rows.columns,
        "numbers": [dtype.is_numeric() for dtype in rows.dtypes],
        "rows": [[_exact(value) for value in row] for row in rows.iter_rows()],
        "places": _places(scene, rows),
        "notes": [str(note) for note in result.notes],
        "command": command_line("sql", *scene.asker.paths, *scene.asker.rules, query),
    }


def _exact(value: Any) -> Any:
    """Whole numbers that a browser would round are text."""
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _places(scene: Served, rows: pl.DataFrame) -> list[tuple[int, int, int] | None]:
    """By row: rank, start and end as they are drawn."""
    if not {"rank", "start_ns"} <= set(rows.columns):
        return [None] * rows.height
    if "end_ns" in rows.columns:
        ends = rows["end_ns"]
    else:
        ends = rows["start_ns"] + rows["dur_ns"] if "dur_ns" in rows.columns else rows["start_ns"] + 1
    places: list[tuple[int, int, int] | None] = []
    for rank, start, end in zip(rows["rank"], rows["start_ns"], ends, strict=True):
        line = scene.lines.get(rank) if isinstance(rank, int) else None
        whole = isinstance(start, int) and isinstance(end, int)
        places.append((rank, line.moment(start), line.moment(max(end, start + 1))) if line and whole else None)
    return places

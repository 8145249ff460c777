"""Rows for other programs: CSV, Parquet and Markdown. Bare numbers, columns as in the rows.

CSV and Parquet have the window of each row in columns. Markdown is read by people: it has the window above the
rows, and shows those that matter of a long list.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import polars as pl

from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.render.inert import markdown, no_formulas, visible_rows


def to_csv(result: Result) -> bytes:
    return no_formulas(visible_rows(_flattened(result.with_window()))).write_csv().encode()


def to_parquet(result: Result) -> bytes:
    buffer = io.BytesIO()
    result.with_window().write_parquet(buffer)
    return buffer.getvalue()


def to_markdown(result: Result) -> bytes:
    """A table for a pull request or an issue, with its window before it and its notes after it."""
    shown = result.for_people()
    rows = _flattened(shown.rows)
    out = [f"**stepscope {result.command}** · {_cell(heading.source_line(result))}", ""]
    if windows := heading.window_lines(result):
        out += [*(f"{_cell(line)}  " for line in windows), ""]
    out += [f"**not to be trusted**: {_cell(n)}  " for n in result.doubts]
    if rows.width:
        out.append("| " + " | ".join(rows.columns) + " |")
        out.append("|" + "|".join("---:" if t.is_numeric() else "---" for t in rows.dtypes) + "|")
        out += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows.iter_rows()]
    if shown.more:
        out += ["", shown.more]
    if figures := {k: v for k, v in result.summary.items() if k != STATEMENT}:
        out += ["", *(f"- {_cell(k)}: {_cell(v)}" for k, v in figures.items())]
    if result.notes_below:
        out += ["", *(f"- note: {_cell(n)}" for n in result.notes_below)]
    if said := result.summary.get(STATEMENT):
        out += ["", f"**{_cell(said)}**"]
    return ("\n".join(out) + "\n").encode()


def _flattened(rows: pl.DataFrame) -> pl.DataFrame:
    """Lists and structs as JSON text: flat formats have no nesting."""
    nested = [name for name, dtype in rows.schema.items() if dtype.is_nested()]
    texts = [
        pl.Series(name, [None if v is None else _text(v) for v in rows[name].to_list()], dtype=pl.String)
        for name in nested
    ]
    return rows.with_columns(texts)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return markdown(_text(value) if isinstance(value, dict | list) else value)

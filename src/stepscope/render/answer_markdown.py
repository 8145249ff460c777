"""Answers as one would paste them into an issue: the table of the terminal, its window above, what it means below.

Units, digits, headings and the choice of columns and rows are the terminal's (`table`, `arrange`). Names of the trace
are code, prose wraps, and the sentence to quote stands last, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from stepscope.model import heading
from stepscope.model.note import Note
from stepscope.model.range_names import bare_name
from stepscope.model.result import LONG, SHOWN, Result
from stepscope.model.statement import STATEMENT
from stepscope.model.units import MISSING
from stepscope.render import layout, narrowed
from stepscope.render.arrange import arrange
from stepscope.render.checks import WELL, checks, other_notes
from stepscope.render.findings import could_save, not_looked_for, parted
from stepscope.render.inert import markdown, visible_result
from stepscope.render.md import code, fenced, folded, listed, prose, table
from stepscope.render.table import PLOT, columns, counted, drawn, single, summarized

#: As wide as the column of an issue. Its cells have wider margins than a terminal's: `_rows` allows for them.
_WIDTH = 124
#: Cells of the longest names, and of lines of prose in a table.
_LONGEST_NAME, _WRAPPED = 40, 24
#: More notes than this are folded.
_MOST_NOTES = 3
#: Columns of names that a program gave: code, and cut in their middle. Other texts wrap.
_NAMES = frozenset(
    {"name", "names", "range", "label", "path", "anchor", "kernel", "call", "next_op", "op", "shapes", "setup", "stage"}
    | {"function", "location", "frame", "module", "region", "term", "counter", "file", "command", "nvtx", "doing"}
)
_MARKS = {"ok": "✅", "passed": "✅", "failed": "❌", "missing": "❌", "skipped": "➖"}


def to_markdown(result: Result) -> bytes:
    """A result for a pull request or an issue."""
    result = visible_result(result)
    if result.command == "diagnose":
        out = _findings(result)
    elif result.command in ("capture verify", "capture doctor"):
        out = _checks(result)
    else:
        out = _answer(narrowed(result))
    return ("\n".join(out).rstrip() + "\n").encode()


def _answer(result: Result) -> list[str]:
    shown = result.for_people()
    out = _opening(result) + _rows(shown.rows, result.begins)
    if shown.more:
        out += [markdown(shown.more), ""]
    for title, figures in summarized(result):
        if isinstance(figures, str):
            out += [f"{prose(title)}: {prose(figures)}" if title else prose(figures), ""]
        else:
            out += [f"**{prose(title)}**", "", *_rows(figures.rows, result.begins)]
            out += [markdown(figures.more), ""] if figures.more else []
    if result.summary.get(PLOT):
        out += fenced(drawn(result, _WIDTH))
    return out + _notes(result.notes_below) + _said(result)


def _opening(result: Result) -> list[str]:
    asked = f"**stepscope {markdown(result.command)}**"
    lines = [" · ".join(filter(None, (asked, markdown(heading.source_line(result)))))]
    lines += [f"window: {markdown(line)}" for line in heading.window_lines(result)]
    lines += [f"**not to be trusted**: {prose(note)}" for note in result.doubts]
    return [*_broken(lines), ""]


def _broken(lines: list[str]) -> list[str]:
    """A paragraph whose lines stay lines."""
    return [*(f"{line}  " for line in lines[:-1]), *lines[-1:]]


def _notes(notes: Sequence[Note], others: Sequence[str] = ()) -> list[str]:
    """Notes, and `others` that say themselves what they are."""
    remarks = listed(map(prose, [*others, *(f"note: {note}" for note in notes)]))
    count = len(notes) + len(others)
    return folded(f"{count} notes", remarks) if count > _MOST_NOTES else remarks


def _said(result: Result) -> list[str]:
    statement = result.summary.get(STATEMENT)
    return [f"**{prose(statement)}**"] if statement else []


def _rows(rows: pl.DataFrame, begins: dict[int, int]) -> list[str]:
    """The table, its later rows folded if they are many, and what the terminal says under it."""
    if rows.height == 0:
        return ["(no rows)", ""]
    rows, clock = counted(rows, begins)
    made = columns(rows)
    empty = [c.title for c in made if all(text == MISSING for text in c.cells)]
    arranged = arrange([_roomy(c) for c in made if c.title not in empty] or made, _WIDTH - 2 * len(made), more="")
    numbers = [i for i, column in enumerate(arranged.columns) if column.number]
    header = _header([column.title for column in arranged.columns])
    lines = list(zip(*map(_cells, arranged.columns), strict=True))
    first = len(lines) if len(lines) <= LONG else SHOWN
    out = table(header, lines[:first], numbers)
    if later := lines[first:]:
        out += folded(f"{len(later):,} more rows", table(header, later, numbers))
    below = [*arranged.below, *clock]
    below += [f"without a value: {', '.join(empty)}"] if 0 < len(empty) < len(made) else []
    return out + ([*_broken([markdown(line) for line in below]), ""] if below else [])


def _header(titles: list[str]) -> list[str]:
    """Titles as words, which wrap; as they are where that would make two of them the same."""
    words = [markdown(title.replace("_", " ")) for title in titles]
    return words if len(set(words)) == len(set(titles)) else [markdown(title) for title in titles]


def _roomy(column: layout.Column) -> layout.Column:
    """Names are cut in their middle at once; other texts wrap."""
    if column.number:
        return column
    if column.title not in _NAMES:
        return replace(column, room=_WRAPPED)
    short = [bare_name(text) if layout.width(text) > _LONGEST_NAME else text for text in column.cells]
    return replace(column, cells=layout.cut(short, _LONGEST_NAME), room=_LONGEST_NAME)


def _cells(column: layout.Column) -> list[str]:
    if column.number:  # a number and its unit stay on one line
        return ["" if text == MISSING else markdown(text).replace(" ", "\u00a0") for text in column.cells]
    named = column.title in _NAMES
    return [_cell(text, named) for text in column.cells]


def _cell(text: str, named: bool) -> str:
    inner = text.lstrip()
    if inner in (MISSING, ""):
        return ""
    depth = (len(text) - len(inner)) // 2  # of a tree's range
    return "&emsp;" * depth + (code(inner) if named else prose(inner))


# -- lists instead of tables -------------------------------------------------------------------------------------------


def _findings(result: Result) -> list[str]:
    first, later = parted(result)
    out = [*_opening(result), *listed(map(prose, first))]
    for number, row in enumerate(result.rows.iter_rows(named=True), 1):
        indent = " " * len(f"{number}. ")
        out.append(f"{number}. **{prose(row['title'])}**  ")
        out.append(f"{indent}{prose(could_save(row, result))} ({code(row['id'])})")
        texts = (prose(row["evidence"]), f"try: {prose(row['try_next'])}", f"see: {code(row['command'])}")
        out += [*(f"{indent}- {text}" for text in texts), ""]
    return out + _notes(later, not_looked_for(result)) + _said(result)


def _checks(result: Result) -> list[str]:
    out = _opening(result)
    for row, (first, *more) in checks(result):
        status = f"{_MARKS.get(row['status'], '⚠️')} {markdown(row['status'])}"
        out += [f"- {status if row['status'] in WELL else f'**{status}**'}: {prose(first)}"]
        out += [f"  - {prose(text)}" for text in more]
    out += ["", prose(single(result.summary, result.begins)), ""]
    return out + _notes(other_notes(result))

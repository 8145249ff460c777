"""Checks for people: a line each with its status painted, prose wrapped, and what to do where one did not pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepscope.model.note import Note
from stepscope.model.result import Result
from stepscope.render.layout import wrapped
from stepscope.render.table import Pen, note_lines, opening, single

WELL = ("ok", "passed", "skipped")
#: How wide the words of a status are.
_STATUS_WIDTH = 9


def checks_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """What failed is said in full, with what was expected and what to do; of the rest, what was found."""
    pen = Pen(colour)
    out = [*opening(result, width, pen), ""]
    for row, texts in checks(result):
        lines = [line for text in texts for line in wrapped(text, width - _STATUS_WIDTH)]
        status = pen.status(row["status"].ljust(_STATUS_WIDTH), row["status"])
        out += [status + lines[0], *(" " * _STATUS_WIDTH + line for line in lines[1:])]
    if line := single(result.summary, result.begins):
        out += ["", *wrapped(line, width)]
    if told := other_notes(result):
        out += ["", *note_lines(told, width, pen)]
    return "\n".join(out) + "\n"


def checks(result: Result) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each check with what is said of it: of one that did not pass also what was expected, and what to do."""
    nodes = "node" in result.rows.columns and result.rows["node"].n_unique() > 1
    for row in result.rows.iter_rows(named=True):
        about = [f"node {row['node']}"] if nodes else []
        about += [f"rank{'s' * (not row['ranks'].isdigit())} {row['ranks']}"] if row.get("ranks") else []
        name = row["check"] + (f" ({', '.join(about)})" if about else "")
        texts = [f"{name}: {row['found']}" if row["found"] else name]
        if row["status"] not in WELL:
            texts += [f"{label}: {row[label]}" for label in ("expected", "needed", "fix") if row.get(label)]
        yield row, texts


def other_notes(result: Result) -> list[Note]:
    """The notes, but for what the checks themselves say."""
    return [note for note in result.notes_below if note.code != "verify-check"]

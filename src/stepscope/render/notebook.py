"""Answers and profiles as notebooks show them: values with units, the window above, notes and the statement below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.render import layout, narrowed
from stepscope.render.inert import escape
from stepscope.render.table import columns, counted, single

#: More ranks than this are counted, not listed.
_MOST_RANKS = 16
_OF_RANKS = ("rank", "host", "pid", "device", "gpu", "setup", "rank_from")
#: What a finding says; where it lies, and the command that shows it, are for pages and agents.
_OF_FINDINGS = ("title", "ranks", "recoverable_ns", "share_pct", "cause", "evidence", "try_next")


def answer_html(result: Result) -> str:
    """What was asked of what, the window, the rows that matter, the figures over all of them, notes, the statement."""
    statement = result.summary.get(STATEMENT)
    above = [f"<b>{escape(result.command)}</b>: {escape(heading.source_line(result))}"]
    above += [f"window: {escape(line)}" for line in heading.window_lines(result)]
    shown = narrowed(result).for_people()
    rows = shown.rows.select(_OF_FINDINGS) if result.command == "diagnose" and shown.rows.height else shown.rows
    rows, clock = counted(rows, result.begins)
    below = [shown.more.replace("--top 0", "top=0")] if shown.more else []
    below += clock
    below += [single(result.summary, result.begins)]
    return "".join(
        [
            f"<p>{'<br>'.join(above)}</p>",
            table_html(columns(rows)) if rows.height else "<p>(no rows)</p>",
            *(f"<p>{escape(line)}</p>" for line in below if line),
            _listed(result.notes_below),
            f"<p><b>{escape(statement)}</b></p>" if statement else "",
        ]
    )


def profile_html(ranks: pl.DataFrame, files: Sequence[str], notes: Sequence[str]) -> str:
    """Which files, which ranks on which GPUs, and what reading them had to say."""
    named = ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")
    described = ranks.select(c for c in _OF_RANKS if ranks[c].null_count() < ranks.height)
    left = ranks.height - _MOST_RANKS
    return "".join(
        [
            f"<p><b>Profile</b> of {ranks.height} rank{'s' * (ranks.height != 1)}: {escape(named)}</p>",
            table_html(columns(described.head(_MOST_RANKS))),
            f"<p>… and {left} more ranks</p>" if left > 0 else "",
            _listed(notes),
        ]
    )


def table_html(shown: list[layout.Column]) -> str:
    """Numbers to the right, texts to the left."""
    sides = ["right" if column.number else "left" for column in shown]

    def row(tag: str, texts: Iterable[str]) -> str:
        cells = (
            f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>' for text, side in zip(texts, sides, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    head = row("th", (column.title for column in shown))
    body = "\n".join(row("td", texts) for texts in zip(*(column.cells for column in shown), strict=True))
    return f"<table><thead>{head}</thead><tbody>\n{body}</tbody></table>"


def _listed(notes: Iterable[object]) -> str:
    items = "".join(f"<li>{escape(str(note))}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""

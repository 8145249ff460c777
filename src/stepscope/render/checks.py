"""Checks for people: a line each with its status painted, prose wrapped, and what to do where one did not pass."""

from __future__ import annotations

from typing import Any

from stepscope.model.result import Result
from stepscope.render.table import Pen, noted, opening, single, wrapped

_WELL = ("ok", "passed", "skipped")
#: How wide the words of a status are.
_STATUS_WIDTH = 9


def checks_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """What failed is said in full, with what was expected and what to do; of the rest, what was found."""
    pen = Pen(colour)
    out = [*opening(result, width, pen), ""]
    nodes = "node" in result.rows.columns and result.rows["node"].n_unique() > 1
    for row in result.rows.iter_rows(named=True):
        out += _check(row, nodes, width, pen)
    if line := single(result.summary):
        out += ["", *wrapped(line, width)]
    told = [n for n in result.notes_below if n.code != "verify-check"]  # what the checks themselves say above
    if told:
        out.append("")
    out += noted(told, width, pen)
    return "\n".join(out) + "\n"


def _check(row: dict[str, Any], nodes: bool, width: int, pen: Pen) -> list[str]:
    about = [f"node {row['node']}"] if nodes else []
    about += [f"rank{'s' * (not row['ranks'].isdigit())} {row['ranks']}"] if row.get("ranks") else []
    name = row["check"] + (f" ({', '.join(about)})" if about else "")
    texts = [f"{name}: {row['found']}" if row["found"] else name]
    if row["status"] not in _WELL:
        texts += [f"{label}: {row[label]}" for label in ("expected", "needed", "fix") if row.get(label)]
    lines = [line for text in texts for line in wrapped(text, width - _STATUS_WIDTH)]
    status = pen.status(row["status"].ljust(_STATUS_WIDTH), row["status"])
    return [status + lines[0], *(" " * _STATUS_WIDTH + line for line in lines[1:])]

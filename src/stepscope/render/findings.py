"""Findings for people: a numbered list, not a table; the operator statement is the last line."""

from __future__ import annotations

from typing import Any

from stepscope.model.note import INCOMPLETE
from stepscope.model.result import Result
from stepscope.model.units import about
from stepscope.render.table import Pen, noted, opening, wrapped


def findings_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """The findings, what could not be looked for, the notes, and the statement."""
    pen = Pen(colour)
    out = opening(result, width, pen)
    # What was not recorded comes first: everything below rests on what was.
    first = [note for note in result.notes if getattr(note, "code", "") in INCOMPLETE]
    for note in first:
        out += [
            pen.yellow(line) for line in wrapped(f"incomplete: {note}; ranks are compared on what all recorded", width)
        ]
    out.append("")
    unit = "capture" if all(w.get("kind") == "capture" for w in result.window) else "step"
    for number, row in enumerate(result.rows.iter_rows(named=True), 1):
        out += [*_finding(number, row, unit, width, pen), ""]
    if skipped := result.summary["skipped"]:
        texts = _by_reason(skipped)
        out += [line for text in texts for line in wrapped(f"not looked for: {text}", width)]
    out += noted([note for note in result.notes if note not in (*first, *result.doubts)], width, pen)
    if skipped or result.notes:
        out.append("")
    out += [pen.bold(line) for line in wrapped(result.summary["statement"], width)]
    return "\n".join(out) + "\n"


def _finding(number: int, row: dict[str, Any], unit: str, width: int, pen: Pen) -> list[str]:
    share = f"{_with_interval(row)}, {row['share_pct']:.1f} % of the {unit}"
    title, *more = wrapped(f"{number}. {row['title']}", width, indent=3)
    out = [
        pen.bold(title),
        *(pen.bold(line) for line in more),
        f"   could give back {share}; confidence {row['confidence']}  [{row['id']}]",
    ]
    for label, key in (("", "evidence"), ("try: ", "try_next"), ("see: ", "command")):
        out += ["   " + line for line in wrapped(f"{label}{row[key]}", width - 3, indent=len(label))]
    return out


def _with_interval(row: dict[str, Any]) -> str:
    """`49 ms (42 to 58)`; units of the ends where they differ."""
    told, low, high = (about(row[f"recoverable_{end}ns"]) for end in ("", "low_", "high_"))
    unit = " " + told.rpartition(" ")[2]
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return f"{told} ({low} to {high})"


def _by_reason(skipped: list[dict[str, str]]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for s in skipped:
        reasons.setdefault(s["why"], []).append(s["id"])
    return [f"{', '.join(ids)} ({why})" for why, ids in reasons.items()]

"""Findings for people: a numbered list, not a table; the operator statement is the last line."""

from __future__ import annotations

from typing import Any

from stepscope.model.note import INCOMPLETE, OF_THE_CAPTURE, Note
from stepscope.model.result import Result
from stepscope.model.units import about
from stepscope.render.layout import wrapped
from stepscope.render.table import Pen, note_lines, opening


def findings_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """The findings, what could not be looked for, the notes, and the statement."""
    pen = Pen(colour)
    out = opening(result, width, pen)
    first, later = parted(result)
    out += [pen.yellow(line) for text in first for line in wrapped(text, width)]
    out.append("")
    for number, row in enumerate(result.rows.iter_rows(named=True), 1):
        worth = f"{could_save(row, result)}  [{row['id']}]"
        out += [*_finding(number, row, worth, ("", "try", "see"), width, pen), ""]
    skipped = not_looked_for(result)
    out += [line for text in skipped for line in wrapped(text, width)]
    out += note_lines(later, width, pen)
    if skipped or result.notes:
        out.append("")
    out += [pen.bold(line) for line in wrapped(result.summary["statement"], width)]
    return "\n".join(out) + "\n"


#: So many findings in a first look.
_FIRST = 3
#: Detectors that are named in a line; all are in the JSON's `skipped`.
_NAMED = 12


def first_findings_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """The first findings in three lines each, what qualifies them, and the statement."""
    pen = Pen(colour)
    out = opening(result, width, pen)
    out += [pen.yellow(line) for text in parted(result)[0] for line in wrapped(text, width)]
    out.append("")
    for number, row in enumerate(result.rows.head(_FIRST).iter_rows(named=True), 1):
        out += _finding(number, row, could_save(row, result), ("try",), width, pen)
    if (left := result.rows.height - _FIRST) > 0:
        out.append(f"and {left} more")
    out += [""] * bool(result.rows.height)
    out += [pen.bold(line) for line in wrapped(result.summary["statement"], width)]
    return "\n".join(out) + "\n"


def parted(result: Result) -> tuple[list[str], list[Note]]:
    """What qualifies every finding: how the profiler changed the step, and what was not recorded; and other notes."""
    first = [note for note in result.notes if note.code in (*OF_THE_CAPTURE, *INCOMPLETE)]
    texts = [_qualifies(note) for note in first]
    return texts, [note for note in result.notes if note not in (*first, *result.doubts)]


def _qualifies(note: Note) -> str:
    if note.code in OF_THE_CAPTURE:
        return f"capture: {note}"
    return f"incomplete: {note}; ranks are compared on what all recorded"


def could_save(row: dict[str, Any], result: Result) -> str:
    """What a finding is worth, and how sure that is."""
    of = result.summary["shares_of"]
    return f"could save {_with_interval(row)}, {row['share_pct']:.1f} % of the {of}; cause {row['cause']}"


def not_looked_for(result: Result) -> list[str]:
    """Findings that the profile cannot tell, by what it lacks."""
    reasons: dict[str, list[str]] = {}
    for skipped in result.summary["skipped"]:
        reasons.setdefault(skipped["why"], []).append(skipped["id"])
    return [f"not checked: {_some_ids(ids)} ({why})" for why, ids in reasons.items()]


def _some_ids(ids: list[str]) -> str:
    """A few by name; of more, nobody reads the list."""
    return ", ".join(ids) if len(ids) <= _NAMED else f"{len(ids)} kinds of findings"


#: What is said of a finding below its title, by the word before it.
_SAID = {"": "evidence", "try": "try_next", "see": "command"}


def _finding(number: int, row: dict[str, Any], worth: str, said: tuple[str, ...], width: int, pen: Pen) -> list[str]:
    out = [pen.bold(line) for line in wrapped(f"{number}. {row['title']}", width, indent=3)]
    out += ["   " + line for line in wrapped(worth, width - 3)]
    for word in said:
        label = f"{word}: " if word else ""
        out += ["   " + line for line in wrapped(f"{label}{row[_SAID[word]]}", width - 3, indent=len(label))]
    return out


def _with_interval(row: dict[str, Any]) -> str:
    """`49 ms (42 to 58)`, with the units of the ends where they differ; `up to 49 ms (24 ms expected)` for a bound."""
    if row["expected_ns"] < row["recoverable_ns"]:
        return f"up to {about(row['recoverable_ns'])} ({about(row['expected_ns'])} expected)"
    told, low, high = (about(row[f"recoverable_{end}ns"]) for end in ("", "low_", "high_"))
    unit = " " + told.rpartition(" ")[2]
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    return f"{told} ({low} to {high})"

"""The answer about a hang for people: the verdict and both sides of the call, who is where, the chain, what to
record."""

from __future__ import annotations

from typing import Any

from stepscope.model.result import Result
from stepscope.render.layout import wrapped
from stepscope.render.md import code, folded, listed, prose, table
from stepscope.render.table import Pen, note_lines, opening, to_rows

_LISTS = (("chain", "who waits for whom"), ("before", "before"), ("record_next_time", "record next time"))


def hang_text(result: Result, width: int = 100, colour: bool = False) -> str:
    """The verdict first; the statement last, as everywhere."""
    pen = Pen(colour)
    out = [*opening(result, width, pen), ""]
    for n, line in enumerate(verdict_lines(result.summary)):
        out += [pen.bold(part) if n < 2 else part for part in wrapped(line, width)]
    out += ["", *to_rows(result.for_people().rows, width, pen)]
    for key, title in _LISTS:
        if items := _texts(result.summary[key]):
            out += ["", pen.bold(title), *(line for item in items for line in wrapped(f"  {item}", width, indent=4))]
    for fact in result.summary["logs"]:
        out += wrapped(f"  log: {fact['text']}", width, indent=4)
    if result.notes:
        out += ["", *note_lines(result.notes, width, pen)]
    out += ["", *(pen.bold(line) for line in wrapped(result.summary["statement"], width))]
    return "\n".join(out) + "\n"


def verdict_lines(summary: dict[str, Any]) -> list[str]:
    """The verdict, the culprits, and the call on both sides."""
    lines = [f"verdict: {summary['verdict']} ({summary['sure']}): {summary['meaning']}"]
    if summary["culprits"]:
        shown = ", ".join(map(str, summary["culprits"][:24])) + (" …" if len(summary["culprits"]) > 24 else "")
        lines.append(f"culprit: rank{'s' * (len(summary['culprits']) > 1)} {shown}")
    if summary["also_possible"]:
        lines.append(f"the dumps also allow: {', '.join(summary['also_possible'])}")
    if call := summary["call"]:
        lines.append(
            f"waited in: {call['call']}, group {call['group']} ({call['purpose']}), call {call['seq']}"
            f"{_at(call['site'])}"
        )
    if own := summary["culprit_call"]:
        lines.append(f"rank {own['rank']} made: {own['made']} in {own['made_in']}{_at(own['made_at'])}")
        lines.append(f"due was: {own['due']} in {own['due_in']}{_at(own['due_at'])}")
    return lines


def hang_markdown(result: Result) -> bytes:
    """For an issue."""
    summary = result.summary
    out = [f"**stepscope hang**: {prose(summary['statement'])}", ""]
    out += listed(map(prose, verdict_lines(summary)))
    header = ("ranks", "count", "role", "state", "call", "group", "seq", "site")
    rows = result.for_people().rows
    cells = ([_cell(row[key]) for key in header] for row in rows.iter_rows(named=True))
    out += table(header, cells, numbers=(1, 6))
    for key, title in _LISTS:
        if items := _texts(summary[key]):
            out += [f"**{title}**", "", *listed(map(prose, items))]
    for stack in summary["frames"]:
        out += folded(f"stack of ranks {stack['ranks']}", listed(map(code, stack["frames"])))
    out += listed(f"note: {prose(note)}" for note in result.notes)
    return ("\n".join(out).rstrip() + "\n").encode()


def _cell(value: Any) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else prose(value)


def _at(site: str | None) -> str:
    return f" at {site}" if site else ""


def _texts(items: list[Any]) -> list[str]:
    return [item["text"] if isinstance(item, dict) else item for item in items]

"""The answer of a gate for those who read it in CI: Markdown for a pull request, JUnit XML for the test report."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from stepscope.model.result import Result
from stepscope.model.units import about, show
from stepscope.render.inert import markdown
from stepscope.render.md import folded, listed, prose, table

_MARKS = {"passed": "✅ passed", "failed": "❌ failed", "inconclusive": "❔ inconclusive"}


def to_markdown(result: Result) -> bytes:
    """The verdict, a table of the checks, what differs, the notes, and the sentence to quote."""
    summary = result.summary
    step = summary["step"]
    out = [f"### stepscope gate: {'passed' if summary['pass'] else 'failed'}", "", markdown(summary["statement"]), ""]
    header = ("check", "status", "base", "new", "growth", "interval", "limit")
    out += table(header, map(_cells, result.rows.iter_rows(named=True)), numbers=range(2, 7))
    out += [*listed(f"{_MARKS[status]}: {prose(check)}: {prose(why)}" for check, status, why in unpassed(result)), ""]
    base, new = about(step["base_ns"], 4), about(step["new_ns"], 4)
    out += [f"Growth, interval and limit are shares of the base's step, {base}; the new one is {new}.", ""]
    if differs := summary.get("differs"):
        out += table(("differs", "base", "new"), ([markdown(d[k]) for k in ("what", "base", "new")] for d in differs))
    out += folded("Notes", listed(prose(note) for note in result.notes))
    return ("\n".join(out).rstrip() + "\n").encode()


def unpassed(result: Result) -> list[tuple[str, str, str]]:
    """Checks that did not pass: what, whether it failed, and why."""
    rows = result.rows.filter(result.rows["status"] != "passed")
    return [(row["check"], row["status"], row["why"]) for row in rows.iter_rows(named=True)]


def to_annotations(result: Result) -> list[str]:
    """A line for GitHub Actions per check that did not pass: it stands on the page of the run and of the change."""
    kinds = {"failed": "error", "inconclusive": "warning" if result.summary["pass"] else "error"}
    return [
        f"::{kinds[status]} title={_escaped(f'stepscope gate: {check} {status}', property=True)}::{_escaped(why)}"
        for check, status, why in unpassed(result)
    ]


def _escaped(text: str, *, property: bool = False) -> str:
    """As workflow commands take it: one line, and in a property neither colon nor comma."""
    for letter, code in (
        ("%", "%25"),
        ("\r", "%0D"),
        ("\n", "%0A"),
        *((((":", "%3A"), (",", "%2C"))) if property else ()),
    ):
        text = text.replace(letter, code)
    return text


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["low_step_pct"], row["high_step_pct"]
    interval = "" if low is None else f"{low:+.1f} to {high:+.1f} %"
    grown = "" if row["step_pct"] is None else f"{row['step_pct']:+.1f} %"
    limit = "" if row["limit_pct"] is None else f"{row['limit_pct']:g} %"
    times = ["" if row[k] is None else show(k, row[k]) for k in ("base_ns", "new_ns")]
    name = row["check"] if row["base_ns"] is not None else f"{row['check']}: {row['why']}"
    return [prose(name), _MARKS[row["status"]], *times, grown, interval, limit]


def to_junit(result: Result, *, allow_inconclusive: bool = False) -> bytes:
    """One test case per check. What could not be decided is a failure of its own type, or skipped where allowed."""
    table = list(result.rows.iter_rows(named=True))
    undecided = [row for row in table if row["status"] == "inconclusive"]
    failed = [row for row in table if row["status"] == "failed"]
    failures = len(failed) + (0 if allow_inconclusive else len(undecided))
    counts = {
        "name": "stepscope gate",
        "tests": str(len(table)),
        "failures": str(failures),
        "errors": "0",
        "skipped": str(len(undecided) if allow_inconclusive else 0),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", counts)
    for row in table:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": "stepscope.gate", "name": _plain(row["check"]), "time": "0"}
        )
        if row["status"] == "failed" or (row["status"] == "inconclusive" and not allow_inconclusive):
            kind = {"message": _plain(row["why"]), "type": row["status"]}
            ElementTree.SubElement(case, "failure", kind).text = _plain(result.summary["statement"])
        elif row["status"] == "inconclusive":
            ElementTree.SubElement(case, "skipped", {"message": _plain(row["why"])})
    ElementTree.SubElement(suite, "system-out").text = "\n".join(
        map(_plain, [result.summary["statement"], *result.notes])
    )
    ElementTree.indent(root)
    xml: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _plain(text: str) -> str:
    """Without characters that XML cannot hold, such as those that kernel names of broken files have."""
    return "".join(
        c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "?" for c in text
    )

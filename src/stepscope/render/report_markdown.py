"""The report for an issue or a pull request: the conclusion, the findings, where the step went, who was late. Small."""

from __future__ import annotations

from typing import Any

from stepscope.model.units import show
from stepscope.render.inert import markdown
from stepscope.render.md import code, folded, listed, prose, table
from stepscope.report.gather import Report
from stepscope.report.part import Part

#: More rows than this are left out, with a line that says so.
_MOST_FINDINGS, _MOST_RANKS = 8, 16


def to_markdown(report: Report) -> str:
    """The report as Markdown."""
    out = [f"### stepscope report · {markdown(report.source)}", ""]
    if report.findings is not None:
        out += _findings(report.findings)
    out += _breakdown(report.breakdown)
    for part in report.parts:
        if part.id in ("compute", "peak", "memory", "roofline"):
            out += [prose(part.data["statement"]), ""]
        if part.id == "stragglers":
            out += _stragglers(part)
    missing = [f"{markdown(m.title)}: not answered, since {prose(m.why)}" for m in report.missing]
    out += folded("Notes", listed([*map(prose, report.notes), *missing]))
    out += [f"{code(report.command)} · stepscope {markdown(report.version)}"]
    return "\n".join(out) + "\n"


def _findings(part: Part) -> list[str]:
    out = [f"**{prose(part.data['statement'])}**", ""] if part.data["statement"] else []
    out += _windows(part)
    out += listed(map(prose, part.data["above"]))
    rows = part.data["rows"]
    if not rows:
        return [*out, "No findings: a clean bill." if part.data["clean"] else "No findings.", ""]
    out += table(
        ("", "finding", "ranks", "could save", "cause", "evidence", "try", "see"),
        (
            (
                str(i + 1),
                f"{prose(r['title'])} ({code(r['id'])})",
                markdown(r["ranks"] or "all"),
                f"{_ns(r['recoverable_ns'])} ({show('x_pct', r['share_pct'])}), {_between(r)}",
                markdown(r["cause"]),
                prose(r["evidence"]),
                prose(r["try_next"]),
                code(r["command"]),
            )
            for i, r in enumerate(rows[:_MOST_FINDINGS])
        ),
        numbers=(0, 3),
    )
    if len(rows) > _MOST_FINDINGS:
        out += [f"{len(rows) - _MOST_FINDINGS} more: {code(part.command)}", ""]
    return out


def _breakdown(part: Part) -> list[str]:
    rows = part.data["rows"]
    parts = ("compute", "comm_exposed", "copy_exposed", "idle")
    out = [f"**{part.title}** ({code(part.command)})", "", *_windows(part)]
    out += table(
        ("rank", "window", "compute", "exposed communication", "exposed copies", "idle"),
        (
            (
                str(r["rank"]),
                _ns(r["window_ns"]),
                *(f"{_ns(r[f'{p}_ns'])} ({show('x_pct', r[f'{p}_pct'])})" for p in parts),
            )
            for r in rows[:_MOST_RANKS]
        ),
        numbers=range(6),
    )
    return [*out, *_more(len(rows) - _MOST_RANKS, part)]


def _stragglers(part: Part) -> list[str]:
    rows = [r for r in part.data["rows"] if r["cause"]]
    if not rows:
        return []
    out = [f"**{part.title}** ({code(part.command)}; {markdown(part.windows[0])})", ""]
    out += table(
        ("rank", "cause", "longer than its peers", "others waited for it", "share of lateness"),
        (
            (
                str(r["rank"]),
                markdown(r["cause"]),
                _ns(r["excess_ns"]),
                _ns(r["late_ns"]),
                show("x_pct", r["share_pct"]),
            )
            for r in rows[:_MOST_RANKS]
        ),
        numbers=(0, 2, 3, 4),
    )
    return [*out, *_more(len(rows) - _MOST_RANKS, part)]


def _more(count: int, part: Part) -> list[str]:
    return [f"{count} more ranks: {code(part.command)}", ""] if count > 0 else []


def _windows(part: Part) -> list[str]:
    return [*(f"window: {markdown(line)}  " for line in part.windows), ""] if part.windows else []


def _between(finding: dict[str, Any]) -> str:
    if finding["expected_ns"] < finding["recoverable_ns"]:
        return f"at most; {_ns(finding['expected_ns'])} expected"
    return f"{_ns(finding['recoverable_low_ns'])} to {_ns(finding['recoverable_high_ns'])}"


def _ns(value: int | None) -> str:
    return show("x_ns", value)

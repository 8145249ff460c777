"""The report as one page: the built bundle, the data as JSON, and the timeline's numbers.

Data never becomes markup: JSON is read by the bundle, which makes text nodes of texts, and no `<` of it reaches the
parser.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepscope.model.note import Note
from stepscope.render.html.shell import bundled, page
from stepscope.render.inert import escape, shown_json
from stepscope.render.json import plain
from stepscope.report.gather import Report
from stepscope.report.part import Part

#: For a browser's window, and whoever reads the file without one.
_NO_SCRIPT = (
    "This page draws itself with JavaScript, which is turned off here. `stepscope report … -o report.md` writes the "
    "findings as text."
)


def to_html(report: Report) -> str:
    """The page."""
    block = report.timeline.block if report.timeline is not None else ""
    body = (
        f'<div id="page"><noscript><p>{escape(_statement(report) or "")}</p>'
        f"<p>{escape(_NO_SCRIPT)}</p></noscript></div>\n"
        f'<script type="application/json" id="report">{_json(_data(report))}</script>\n'
        f'<script type="text/plain" id="block">{block}</script>\n'
        f"<script>{bundled('report.js')}</script>"
    )
    return page(report.source, bundled("report.css"), body, scripts=True)


def _weight(note: Note) -> int:
    """What was lost first, then what qualifies figures."""
    return ("loss", "warning", "info").index(note.severity)


def _json(data: Any) -> str:
    """JSON that no parser of HTML takes for markup: neither `</script>` nor `<!--` can be in it."""
    text = msgspec.json.Encoder(enc_hook=plain).encode(data).decode()
    return shown_json(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _statement(report: Report) -> str | None:
    statement = report.findings.data["statement"] if report.findings is not None else None
    return str(statement) if statement else None


def _data(report: Report) -> dict[str, Any]:
    concluded = report.findings
    return {
        "source": report.source,
        "command": report.command,
        "version": report.version,
        "ranks": report.ranks,
        "findings": _part(concluded, rows=_placed(report, concluded)) if concluded is not None else None,
        "parts": {p.id: _part(p) for p in (report.breakdown, *report.parts)},
        "timeline": _part(report.timeline.part) if report.timeline is not None else None,
        "missing": [{"title": m.title, "why": m.why} for m in report.missing],
        "notes": [n.data() for n in sorted(report.notes, key=_weight)],
    }


def _part(part: Part, **replaced: Any) -> dict[str, Any]:
    return {"title": part.title, "command": part.command, "windows": part.windows, **part.data, **replaced}


def _placed(report: Report, concluded: Part) -> list[dict[str, Any]]:
    """Findings with the places they name on the timeline's scale; none where there is no timeline."""
    if report.timeline is None:
        return [{**row, "where": []} for row in concluded.data["rows"]]
    placed = report.timeline.placed
    return [{**row, "where": [p for w in row["where"] if (p := placed(w))]} for row in concluded.data["rows"]]

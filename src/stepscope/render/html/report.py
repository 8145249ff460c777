"""The report as one page: the built bundle, the data as JSON, and the timeline's numbers.

Data never becomes markup: JSON is read by the bundle, which makes text nodes of texts, and no `<` of it reaches the
parser.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from stepscope.model.note import Note
from stepscope.render.html.shell import bundled, page
from stepscope.render.inert import escape, shown_json
from stepscope.render.json import plain
from stepscope.report.gather import Report
from stepscope.report.messages.page import MissingPart, Parts, TimelineData
from stepscope.report.messages.page import Report as Data
from stepscope.report.messages.shared import NoteData
from stepscope.report.sections import findings

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


def _data(report: Report) -> Data:
    concluded, drawing = report.findings, report.timeline
    place = drawing.placed if drawing is not None else lambda where: None
    parts = {p.id: p.shown() for p in (report.breakdown, *report.parts)}
    return Data(
        source=report.source,
        command=report.command,
        version=report.version,
        ranks=report.ranks,
        findings=findings.placed_at(concluded, place) if concluded is not None else None,
        parts=cast("Parts", parts),
        timeline=cast("TimelineData", drawing.part.shown()) if drawing is not None else None,
        missing=[MissingPart(title=m.title, why=m.why) for m in report.missing],
        notes=[cast("NoteData", n.data()) for n in sorted(report.notes, key=_weight)],
    )

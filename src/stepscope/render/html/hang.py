"""A hang as one page: the verdict, the picture of ranks and sequence numbers, who is where, the chain, the stacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepscope.hang.picture import Picture
from stepscope.model.result import Result
from stepscope.model.units import about
from stepscope.render.hang import verdict_lines
from stepscope.render.html.shell import page
from stepscope.render.inert import escape, visible_result

_CELL, _LEFT, _TOP = 22, 84, 34
_STYLE = """main{max-width:1000px;margin:0 auto;padding:20px} h1{font-size:20px}h2{font-size:16px;margin:22px 0 6px}
table{border-collapse:collapse;width:100%}
td,th{border:1px solid var(--line);padding:3px
8px;text-align:left;vertical-align:top}
pre{background:var(--panel);padding:8px;overflow:auto;font-family:var(--mono);font-size:12px}
svg{max-width:100%;height:auto}text{font:11px system-ui,sans-serif;fill:currentColor}
.completed{fill:#7fb58a}.started{fill:#e0a93b}.scheduled{fill:#c98bd1}.none{fill:none;stroke:#999;stroke-dasharray:2
2} .nodump{fill:#bbb}.culprit{font-weight:bold;fill:#c0392b}.front{fill:none;stroke:#c0392b;stroke-width:2}
"""
_KINDS = {
    "completed": "completed",
    "started": "started",
    "scheduled": "scheduled",
    "not called": "none",
    "no dump": "nodump",
}


def hang_page(result: Result, picture: Picture | None) -> str:
    """The document; nothing in it runs."""
    result = visible_result(result)
    summary = result.summary
    lines = verdict_lines(summary)
    body = [f"<h1>{escape(summary['statement'])}</h1>", *(f"<p>{escape(line)}</p>" for line in lines)]
    if picture is not None:
        body += [f"<h2>Calls of {escape(picture.purpose)} by rank</h2>", _drawn(picture), _legend(picture)]
    body += ["<h2>Who is where</h2>", _table(result)]
    for key, title in (("chain", "Who waits for whom"), ("before", "Before"), ("record_next_time", "Record next time")):
        items = [item["text"] if isinstance(item, dict) else item for item in summary[key]]
        body += [f"<h2>{title}</h2><ul>", *(f"<li>{escape(item)}</li>" for item in items), "</ul>"] if items else []
    for stack in summary["frames"]:
        body.append(f"<h2>Stack of ranks {escape(stack['ranks'])}</h2><pre>{escape(_lines(stack['frames']))}</pre>")
    body += [f'<p class="dim">note: {escape(note)}</p>' for note in result.notes]
    return page("hang", _STYLE, f"<main>{''.join(body)}</main>")


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _table(result: Result) -> str:
    names = result.rows.columns
    head = "".join(f"<th>{escape(name.removesuffix('_ns'))}</th>" for name in names)
    rows = result.for_people().rows.iter_rows(named=True)
    return f"<table><tr>{head}</tr>{''.join(_row(row, names) for row in rows)}</table>"


def _row(row: dict[str, Any], names: list[str]) -> str:
    cells = (
        about(row[n]) if n.endswith("_ns") and row[n] is not None else "" if row[n] is None else str(row[n])
        for n in names
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _drawn(picture: Picture) -> str:
    """A square for each rank and call; the column of the front is framed, and culprits are red."""
    width = _LEFT + _CELL * len(picture.numbers) + 8
    height = _TOP + _CELL * len(picture.ranks) + 8
    parts = []
    for j, number in enumerate(picture.numbers):
        if number == picture.front or number % 4 == 0:
            parts.append(
                f'<text x="{_LEFT + j * _CELL + _CELL / 2:.0f}" y="{_TOP - 8}" text-anchor="middle">{number}</text>'
            )
    for i, rank in enumerate(picture.ranks):
        y = _TOP + i * _CELL
        kind = ' class="culprit"' if rank in picture.culprits else ""
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end"{kind}>rank {rank}</text>')
        for j, state in enumerate(picture.cells[i]):
            tip = f"rank {rank}, call {picture.numbers[j]}: {state}"
            parts.append(
                f'<rect x="{_LEFT + j * _CELL}" y="{y}" width="{_CELL - 3}" height="{_CELL - 3}"'
                f' class="{_KINDS[state]}"><title>{escape(tip)}</title></rect>'
            )
    if picture.front in picture.numbers:
        x = _LEFT + picture.numbers.index(picture.front) * _CELL - 2
        parts.append(
            f'<rect x="{x}" y="{_TOP - 3}" width="{_CELL + 1}" height="{_CELL * len(picture.ranks) + 2}"'
            ' class="front"/>'
        )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="calls by rank and sequence number"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _legend(picture: Picture) -> str:
    left = f" {picture.left_out} other ranks are left out." if picture.left_out else ""
    return (
        '<p class="dim">Green: completed; yellow: started; violet: enqueued; dashed: not called; grey: no dump. '
        f"The frame is the call that everybody waits for; red ranks are the culprits.{left}</p>"
    )

"""A recipe as one self-contained page: pictures, tables, what it rests on, and the command that made it."""

from __future__ import annotations

import polars as pl

from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.model.units import header, show
from stepscope.nsys.recipes.spec import Outcome, Recipe
from stepscope.render.html.palette import SERIES
from stepscope.render.html.shell import page
from stepscope.render.html.svg import draw
from stepscope.render.inert import escape

#: A page is for looking at: longer tables are in the data files beside it.
_MOST_ROWS = 500

_STYLE = (
    """
body{margin:0 auto;max-width:1080px;padding:28px 24px 60px}
h1{font-size:22px;margin:0 0 2px}h2{font-size:15px;margin:30px 0 8px}h2 .dim{font-weight:400}
code,pre{font:12.5px/1.5 var(--mono)}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 12px;white-space:pre-wrap;
overflow-wrap:anywhere;margin:10px 0;max-height:170px;overflow-y:auto}
figure{margin:0;padding:10px 8px 4px;border:1px solid var(--line);border-radius:8px;background:var(--panel)}
svg{width:100%;height:auto;display:block;font:11px system-ui,sans-serif}
.tick{fill:var(--ink)}.name{fill:var(--dim)}.axis{stroke:var(--dim)}.grid{stroke:var(--line)}
.heat{fill:var(--compute)}.none{fill:none;stroke:var(--line)}.cell{stroke:var(--line);stroke-width:.4}
.line{fill:none;stroke-width:1.4}.fill.less{fill:var(--chunk-w)}
"""
    + "".join(f".fill.s{i}{{fill:var(--{c})}}.line.s{i}{{stroke:var(--{c})}}" for i, c in enumerate(SERIES))
    + """
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:8px;max-height:560px;overflow-y:auto}
table{border-collapse:collapse;width:100%;font-size:12.5px;font-variant-numeric:tabular-nums}
th,td{padding:4px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--panel);font-weight:600}
td.t,th.t{text-align:left}td.t{max-width:320px;overflow:hidden;text-overflow:ellipsis}
li{margin:2px 0}
"""
)


def to_html(recipe: Recipe, outcome: Outcome, result: Result, command: str) -> str:
    """The page; it loads nothing from anywhere."""
    parts = [
        f"<h1>{escape(recipe.title)}</h1>",
        f'<p class="dim">{escape(heading.source_line(result))}</p>',
        *(f'<p class="dim">window: {escape(line)}</p>' for line in heading.window_lines(result)),
        f"<p>{escape(recipe.doc)}</p>",
        f"<pre>{escape(command)}</pre>",
    ]
    if outcome.summary:
        pairs = " · ".join(f"{escape(header(k))} <b>{escape(show(k, v))}</b>" for k, v in outcome.summary.items())
        parts.append(f"<p>{pairs}</p>")
    parts += [f"<h2>{escape(p.title)}</h2><figure>{draw(p)}</figure>" for p in outcome.pictures]
    for name, frame in list(outcome.tables.items())[:2]:
        parts.append(f"<h2><code>{escape(name)}</code>{_cut(frame)}</h2>{_table(frame)}")
    others = list(outcome.tables)[2:]
    if others:
        listed = ", ".join(f"<code>{escape(n)}</code>" for n in others)
        parts.append(f'<p class="dim">In the data files beside this page: {listed}.</p>')
    if result.notes:
        parts.append("<h2>Notes</h2><ul>" + "".join(f"<li>{escape(n)}</li>" for n in result.notes) + "</ul>")
    return page(recipe.title, _STYLE, "".join(parts))


def _cut(frame: pl.DataFrame) -> str:
    more = frame.height > _MOST_ROWS
    rows = f"{frame.height} row{'s' * (frame.height != 1)}"
    return f' <span class="dim">{f"the first {_MOST_ROWS} of {rows}" if more else rows}</span>'


def _table(frame: pl.DataFrame) -> str:
    shown = frame.head(_MOST_ROWS)
    kinds = ["" if t.is_numeric() else ' class="t"' for t in shown.dtypes]
    head = "".join(f"<th{k}>{escape(header(c))}</th>" for c, k in zip(shown.columns, kinds, strict=True))
    lines = []
    for row in shown.iter_rows():
        cells = zip(shown.columns, row, kinds, strict=True)
        lines.append("<tr>" + "".join(_cell(c, v, k) for c, v, k in cells) + "</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(column: str, value: object, kind: str) -> str:
    text = escape(show(column, value))
    whole = f' title="{text}"' if kind and len(text) > 50 else ""
    return f"<td{kind}{whole}>{text}</td>"

"""A recipe as one self-contained page: pictures, tables, what it rests on, and the command that made it."""

from __future__ import annotations

from html import escape

import polars as pl

from stepscope.model import heading
from stepscope.model.result import Result
from stepscope.model.units import header, show
from stepscope.nsys.recipes.spec import Outcome, Recipe
from stepscope.render.html.svg import draw

#: A page is for looking at: longer tables are in the data files beside it.
_MOST_ROWS = 500

_STYLE = (
    """
:root{color-scheme:light dark;--ink:#1c2024;--dim:#60646c;--paper:#fff;--line:#e0e1e6;--panel:#f9f9fb;--accent:#2f6fdd;
--less:#1a8a5f;--s0:#2f6fdd;--s1:#d9730d;--s2:#1a8a5f;--s3:#c2298a;--s4:#7a5af5;--s5:#0b8793;--s6:#b54708;--s7:#5b6470}
@media(prefers-color-scheme:dark){:root{--ink:#edeef0;--dim:#a3a9b3;--paper:#14161a;--line:#33373f;--panel:#1b1e24;
--accent:#6ea8ff;--less:#4cc38a;--s0:#6ea8ff;--s1:#ffa057;--s2:#4cc38a;--s3:#f472b6;--s4:#b29bff;--s5:#4ccce6;--s6:#e6b450;
--s7:#9aa3b2}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:28px 24px 60px;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:22px;margin:0 0 2px}h2{font-size:15px;margin:30px 0 8px}h2 .dim{font-weight:400}
p{margin:4px 0}.dim{color:var(--dim)}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 12px;white-space:pre-wrap;
overflow-wrap:anywhere;margin:10px 0;max-height:170px;overflow-y:auto}
figure{margin:0;padding:10px 8px 4px;border:1px solid var(--line);border-radius:8px;background:var(--panel)}
svg{width:100%;height:auto;display:block;font:11px system-ui,sans-serif}
.tick{fill:var(--ink)}.name{fill:var(--dim)}.axis{stroke:var(--dim)}.grid{stroke:var(--line)}
.heat{fill:var(--accent)}.none{fill:none;stroke:var(--line)}.cell{stroke:var(--line);stroke-width:.4}
.line{fill:none;stroke-width:1.4}.fill.less{fill:var(--less)}
"""
    + "".join(f".fill.s{i}{{fill:var(--s{i})}}.line.s{i}{{stroke:var(--s{i})}}" for i in range(8))
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
    title = f"{recipe.title} · stepscope"
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
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


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

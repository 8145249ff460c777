"""Captures of one job over time, as Markdown and as a page: a line per figure, findings that came and went."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepscope.model.alike import alike
from stepscope.model.units import about
from stepscope.render.html.shell import page
from stepscope.render.inert import escape, markdown
from stepscope.render.md import listed, table
from stepscope.report.trend import Captured, Trend

#: Title, name with its unit, figure, how it is written, colour.
_FIGURES: tuple[tuple[str, str, Callable[[Captured], float | None], Callable[[float], str], str], ...] = (
    ("step", "step_ns", lambda c: c.step_ns, about, "ink"),
    ("MFU", "mfu_pct", lambda c: c.mfu_pct, lambda share: f"{share:.1f} %", "compute"),
    ("exposed communication", "exposed_ns", lambda c: c.exposed_ns, about, "comm"),
    ("idle", "idle_ns", lambda c: c.idle_ns, about, "idle-host"),
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 560, 160, 8, 30, 26
#: More captures have no room for all their names.
_MOST_NAMED = 8
_STYLE = """main{max-width:1200px;margin:0 auto;padding:20px 24px 60px}
h1{font-size:21px;margin:0 0 4px}h1,p,li,td.title{overflow-wrap:anywhere}h2{font-size:17px;margin:28px 0 6px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(380px,100%),1fr));gap:14px}
figure{margin:0;border:1px solid var(--line);border-radius:10px;padding:10px 14px;background:var(--panel)}
figcaption{display:flex;justify-content:space-between;gap:12px;font-size:13px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:11px;fill:var(--dim)}
svg .value{fill:var(--ink);paint-order:stroke;stroke:var(--panel);stroke-width:4px}
p+.charts{margin-top:12px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:4px 0 4px 14px;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0}
thead th{color:var(--dim);font-weight:400;border-bottom:1px solid var(--line)}
td.title{text-align:left;white-space:normal;min-width:220px}
.came{color:var(--accent);font-weight:600}.went{color:var(--dim)}
code{font:12px/1.5 var(--mono);overflow-wrap:anywhere}
@media(max-width:700px){main{padding:16px 12px 40px}svg text{font-size:19px}
table{font-size:12px}th,td{padding-left:8px}td.title{min-width:120px}
thead th{white-space:normal}.lesser{display:none}td.title code{display:block;font-size:11px;color:var(--dim)}}"""


def to_markdown(trend: Trend, command: str) -> str:
    """A table of figures, one of findings, and what came and went."""
    names = [one.name for one in trend.captures]
    out = [f"### stepscope: {len(names)} captures over time", ""]
    columns, without = _columns(trend.captures)
    cells = zip(map(markdown, names), *columns.values(), strict=True)
    out += table(("capture", *columns), cells, numbers=range(1, 1 + len(columns)))
    out += [f"{without}\n"] if without else []
    rows = ([f"{markdown(title)} `{key}`", *(map(_gain, gains))] for key, title, gains in trend.findings())
    out += table(("finding", *map(markdown, names)), rows, numbers=range(1, len(names) + 1))
    out += [*listed(map(markdown, trend.changes())), ""]
    out += listed(f"not read: {markdown(one.name)}: {markdown(one.why)}" for one in trend.unread)
    return "\n".join(out).rstrip() + f"\n\n`{command}`\n"


def to_html(trend: Trend, command: str) -> str:
    """The page: a chart per figure, the table below, and findings by capture."""
    first, last = trend.captures[0], trend.captures[-1]
    ends = [f"{about(one.step_ns)} ({one.name})" for one in (first, last)]
    change = round((last.step_ns - first.step_ns) / first.step_ns * 100 if first.step_ns else 0.0, 1)
    change_text = f"The step went from {ends[0]} to {ends[1]}, {f'{change:+.1f} %' if change else 'unchanged'}"
    longest = max(trend.captures, key=lambda one: one.step_ns)
    if about(longest.step_ns) not in (about(first.step_ns), about(last.step_ns)):
        change_text += f"; the longest was {about(longest.step_ns)} ({longest.name})"
    charts = "".join(
        _chart(trend.captures, title, figure, write, colour) for title, _, figure, write, colour in _FIGURES
    )
    names = "".join(f'<th scope="col">{escape(one.name)}</th>' for one in trend.captures)
    _, lacking = _columns(trend.captures)
    without = f"; {lacking}" if lacking else ""
    body = (
        f"<main><h1>{len(trend.captures)} captures over time</h1><p>{escape(change_text)}.</p>"
        f'<div class="charts">{charts}</div>'
        f"<h2>Findings that appeared or disappeared</h2>{_scroll('findings by capture', _findings(trend, names))}"
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in trend.changes())}</ul>"
        f"<h2>Figures</h2>{_scroll('figures by capture', _table(trend))}"
        f'<p class="dim">Means over the ranks of the step that each capture is asked about by default{without}.</p>'
        f"{''.join(f'<p class=dim>not read: {escape(one.name)}: {escape(one.why)}</p>' for one in trend.unread)}"
        f"<p><code>$ {escape(command)}</code></p></main>"
    )
    return page("captures over time", _STYLE, body)


def _scroll(label: str, inner: str) -> str:
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>{inner}</table></div>'


def _columns(captures: Sequence[Captured]) -> tuple[dict[str, list[str]], str]:
    """Each figure of all captures by its title, in one unit; and which of them no capture has."""
    values = {title: (name, [figure(one) for one in captures]) for title, name, figure, _, _ in _FIGURES}
    without = [title for title, (_, column) in values.items() if all(value is None for value in column)]
    shown = {title: alike(*named) for title, named in values.items() if title not in without}
    return shown, f"without a value: {', '.join(without)}" if without else ""


def _gain(ns: int | None) -> str:
    return "" if ns is None else about(ns)


def _table(trend: Trend) -> str:
    columns, _ = _columns(trend.captures)
    titles = "".join(f'<th scope="col">{title}</th>' for title in columns)
    head = f'<th scope="col">capture</th><th scope="col">ranks</th><th scope="col" class="lesser">window</th>{titles}'
    rows = ""
    for one, *values in zip(trend.captures, *columns.values(), strict=True):
        cells = f'<td>{one.ranks}</td><td class="lesser">{escape(one.window)}</td>'
        cells += "".join(f"<td>{escape(text)}</td>" for text in values)
        rows += f'<tr><th scope="row" title="{escape(one.path, quote=True)}">{escape(one.name)}</th>{cells}</tr>'
    return f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"


def _findings(trend: Trend, names: str) -> str:
    rows = ""
    for key, title, gains in trend.findings():
        cells = ""
        for before, ns in zip([gains[0], *gains], gains, strict=False):  # before the first, nothing is known
            came, went = before is None and ns is not None, before is not None and ns is None
            text = about(ns) if ns is not None else "gone" if went else "–"
            cells += f'<td class="{"came" if came else "went" if went else ""}">{escape(text)}</td>'
        rows += f'<tr><td class="title">{escape(title)} <code>{escape(key)}</code></td>{cells}</tr>'
    if not rows:
        return "<tbody><tr><td>No capture has a finding.</td></tr></tbody>"
    return f'<thead><tr><th scope="col">finding</th>{names}</tr></thead><tbody>{rows}</tbody>'


def _chart(
    captures: Sequence[Captured],
    title: str,
    figure: Callable[[Captured], float | None],
    write: Callable[[float], str],
    colour: str,
) -> str:
    """A line from capture to capture, from zero; where a capture lacks the figure, there is a gap."""
    values = [figure(one) for one in captures]
    present = [value for value in values if value is not None]
    if not any(present):
        return ""  # a line at zero shows nothing; the table says what was not recorded
    most = max(*present, 1e-9)
    step = (_WIDTH - 2 * _LEFT) / max(len(values) - 1, 1)
    points = [
        None if v is None else (_LEFT + k * step, _TOP + (_HEIGHT - _BOTTOM - _TOP) * (1 - v / most))
        for k, v in enumerate(values)
    ]
    lines = marks = ""
    for k, (point, value) in enumerate(zip(points, values, strict=True)):
        if point is None or value is None:
            continue
        x, y = point
        if k and (before := points[k - 1]) is not None:
            ends = f'x1="{before[0]:.1f}" y1="{before[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}"'
            lines += f'<line {ends} style="stroke:var(--{colour});stroke-width:2"/>'
        anchor = "start" if k == 0 else "end" if k == len(values) - 1 else "middle"
        name = escape(captures[k].name)
        marks += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:var(--{colour})">'
        marks += f"<title>{name}: {write(value)}</title></circle>"
        if len(values) <= _MOST_NAMED or k in (0, len(values) - 1):
            at = f'x="{x:.1f}" text-anchor="{anchor}"'
            marks += f'<text class="value" {at} y="{y - 8:.1f}">{write(value)}</text>'
            marks += f'<text {at} y="{_HEIGHT - 6}">{escape(captures[k].name[:16])}</text>'
    base = f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM}" style="stroke:var(--line)"/>'
    written = ", ".join(map(write, present))
    return (
        f"<figure><figcaption><b>{title}</b><span class=dim>last: {write(present[-1])}</span></figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}: {written}">'
        f"{base}{lines}{marks}</svg></figure>"
    )

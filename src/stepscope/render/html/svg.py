"""Pictures as SVG text: heat maps, lines, bars, histograms, trees. Colours are those of the palette."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from stepscope.model.kernel_names import kernel_base
from stepscope.model.units import duration, header, show
from stepscope.nsys.recipes.picture import Bars, HeatMap, Histogram, Lines, Picture, Tree
from stepscope.render.html.palette import SERIES
from stepscope.render.inert import escape

WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 40
_LABEL = 300
#: Cut names to what the label column holds.
_LETTERS = 44
#: `500.0 ms` on an axis is `500 ms`.
_ROUND = re.compile(r"\.0+ ")
#: More series than colours share them.
_COLOURS = len(SERIES)


def draw(picture: Picture) -> str:
    """The picture as one `<svg>`, with a tooltip on every mark."""
    if isinstance(picture, HeatMap):
        return _heat_map(picture)
    if isinstance(picture, Lines):
        return _lines(picture)
    if isinstance(picture, Bars):
        return _bars(picture)
    return _histogram(picture) if isinstance(picture, Histogram) else _tree(picture)


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title, True)}"'
        f' xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "tick", tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{title}{escape(text)}</text>'


def _rect(x: float, y: float, w: float, h: float, style: str, tip: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{w:.2f}" height="{h:.2f}" {style}><title>{escape(tip)}</title></rect>'


def _short(text: str, most: int = _LETTERS) -> str:
    """Kernels without templates; of what is still too long, the beginning and the end."""
    text = kernel_base(text) if len(text) > most else text
    keep = most - 1
    return text if len(text) <= most else f"{text[: keep * 2 // 3]}…{text[-(keep // 3) :]}"


def _ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers within [low, high]."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / about))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= about)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _shown(axis: str, value: float) -> str:
    """A value as its axis' unit says; instants are lengths of time here: they count from the left edge."""
    if axis.endswith("_ns"):
        return _ROUND.sub(" ", duration(value))
    return show(axis, round(value) if float(value).is_integer() else value)


def _axis_x(axis: str, low: float, high: float, left: float, right: float, y: float, base: float = 0) -> list[str]:
    scale = (right - left) / ((high - low) or 1)
    out = [f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" class="axis"/>']
    for tick in _ticks(low - base, high - base):
        x = left + (tick + base - low) * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}" class="axis"/>')
        out.append(_text(x, y + 17, _shown(axis, tick), "middle"))
    return out


def _axis_y(axis: str, low: float, high: float, left: float, right: float, top: float, bottom: float) -> list[str]:
    scale = (bottom - top) / ((high - low) or 1)
    out = []
    for tick in _ticks(low, high, 5):
        y = bottom - (tick - low) * scale
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        out.append(_text(left - 6, y + 4, _shown(axis, tick), "end"))
    return out


def _legend(labels: Sequence[str], y: float) -> tuple[list[str], float]:
    """Names beside their colours, in as many lines as they need; and where they end."""
    out: list[str] = []
    x = float(_LEFT)
    for i, label in enumerate(labels):
        name = _short(label, 60)
        wide = 26 + 6.6 * len(name)
        if x + wide > WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + 18
        out.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="11" height="11" rx="2" class="fill s{i % _COLOURS}"/>')
        out.append(_text(x + 16, y, name, tip=label if name != label else ""))
        x += wide
    return out, y + 8


def _heat_map(p: HeatMap) -> str:
    tall = 22 if len(p.rows) <= 32 else 12 if len(p.rows) <= 96 else 5
    left, right = 118.0, float(WIDTH - _RIGHT)
    wide = (right - left) / max(len(p.values[0]) if p.values else 1, 1)
    bin_ns = (p.end_ns - p.start_ns) / max(len(p.values[0]) if p.values else 1, 1)
    top = max((v for line in p.values for v in line if v is not None), default=0)
    most = max(100.0, float(top or 0)) if p.unit == "%" else float(top or 1)
    out = []
    step = max(1, -(-14 // tall))
    for i, (label, line) in enumerate(zip(p.rows, p.values, strict=True)):
        y = _TOP + i * tall
        if i % step == 0:
            out.append(_text(left - 8, y + tall / 2 + 4, label, "end"))
        for k, value in enumerate(line):
            tip = f"{label}, from {duration(k * bin_ns)}: {'not sampled' if value is None else f'{value:g} {p.unit}'}"
            style = 'class="none"' if value is None else f'class="heat cell" fill-opacity="{max(value, 0) / most:.3f}"'
            out.append(_rect(left + k * wide, y, max(wide - 0.6, 0.4), tall - 1.5, style, tip))
    bottom = _TOP + len(p.rows) * tall + 2
    out += _axis_x("start_ns", p.start_ns, p.end_ns, left, right, bottom, p.start_ns)
    below = bottom + 34.0
    out.append(_text(left, below + 9, f"0 {p.unit}", "start"))
    for k in range(40):
        style = f'class="heat" fill-opacity="{k / 39:.3f}"'
        out.append(_rect(left + 30 + k * 4, below, 4.2, 11, style, f"{k / 39 * most:.0f} {p.unit}"))
    out.append(_text(left + 200, below + 9, f"{most:,.0f} {p.unit}"))
    out.append(_text(right, below + 9, "time since the left edge", "end", "name"))
    return _svg(below + 20, p.title, out)


def _lines(p: Lines) -> str:
    xs = [float(v) for _, x, _ in p.series for v in x if v is not None]
    ys = [float(v) for _, _, y in p.series for v in y if v is not None]
    if not xs or not ys:
        return _svg(30, p.title, [_text(_LEFT, 20, "nothing to draw")])
    legend, top = _legend([label for label, _, _ in p.series], _TOP + 8)
    left, right, bottom = _LEFT + 20.0, float(WIDTH - _RIGHT), top + 320
    x0, x1 = min(xs), max(xs)
    y0, y1 = min(0.0, min(ys)), max(ys) or 1.0
    base = x0 if p.x.endswith("start_ns") else 0.0
    out = [
        *legend,
        *_axis_y(p.y, y0, y1, left, right, top + 4, bottom),
        *_axis_x(p.x, x0, x1, left, right, bottom, base),
    ]
    sx, sy = (right - left) / ((x1 - x0) or 1), (bottom - top - 4) / ((y1 - y0) or 1)
    for i, (label, x, y) in enumerate(p.series):
        values = [(float(a), float(b)) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
        points = [(left + (a - x0) * sx, bottom - (b - y0) * sy) for a, b in values]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" class="line s{i % _COLOURS}"><title>{escape(label)}</title></polyline>')
        if len(points) <= 400:
            for (a, b), (va, vb) in zip(points, values, strict=True):
                tip = f"{label}: {header(p.x)} {_shown(p.x, va - base)}, {header(p.y)} {_shown(p.y, vb)}"
                dot = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.4" class="fill s{i % _COLOURS}">'
                out.append(f"{dot}<title>{escape(tip)}</title></circle>")
    out.append(_text(right, bottom + 34, "time since the first" if base else header(p.x), "end", "name"))
    out.append(_text(left, bottom + 34, f"up: {header(p.y)}", "start", "name"))
    return _svg(bottom + 42, p.title, out)


def _bars(p: Bars) -> str:
    longest = max((len(x) for x in p.labels), default=0)
    left = min(float(_LABEL), 24 + 6.6 * longest)
    right = float(WIDTH - 90)
    values = [float(v or 0) for v in p.values]
    low, high = min([0.0, *values]), max([0.0, *values]) or 1.0
    high = max(high, 100.0) if p.unit.endswith("_pct") else high
    if low < 0:
        left += 70  # room for the figures of bars that go left
    scale = (right - left) / ((high - low) or 1)
    zero = left - low * scale
    out = []
    for i, (label, value) in enumerate(zip(p.labels, values, strict=True)):
        y = _TOP + i * 24
        name = _short(label)
        detail = f": {p.detail[i]}" if i < len(p.detail) else ""
        tip = f"{label}\n{_signed(p, value)}{detail}"
        out.append(
            _text(min(left, zero) - (78 if low < 0 else 8), y + 13, name, "end", tip=label if name != label else "")
        )
        style = 'class="fill less"' if value < 0 else 'class="fill s0"'
        out.append(_rect(zero + min(value, 0) * scale, y, max(abs(value) * scale, 0.8), 18, style, tip))
        end = zero + value * scale
        out.append(_text(end - 5 if value < 0 else end + 5, y + 13, _signed(p, value), "end" if value < 0 else "start"))
    return _svg(_TOP + len(p.labels) * 24 + 8, p.title, out)


def _signed(p: Bars, value: float) -> str:
    return _shown(p.unit, int(value) if p.unit.endswith(("_ns", "_bytes")) else value)


def _histogram(p: Histogram) -> str:
    legend, top = _legend([label for label, _ in p.series], _TOP + 8)
    left, right, bottom = float(_LEFT), float(WIDTH - _RIGHT), top + 280
    stacked = [sum(counts[k] for _, counts in p.series) for k in range(len(p.edges) - 1)]
    high = max(stacked, default=1) or 1
    out = [*legend, *_axis_y("n", 0, high, left, right, top + 4, bottom)]
    log = [math.log(max(e, 1)) for e in p.edges]
    scale = (right - left) / ((log[-1] - log[0]) or 1)
    tall = (bottom - top - 4) / high
    for k in range(len(p.edges) - 1):
        x, w = left + (log[k] - log[0]) * scale, (log[k + 1] - log[k]) * scale
        y = bottom + 0.0
        for i, (label, counts) in enumerate(p.series):
            if counts[k]:
                y -= counts[k] * tall
                tip = f"{label}: {counts[k]} of {duration(p.edges[k])} to {duration(p.edges[k + 1])}"
                out.append(_rect(x, y, max(w - 1, 0.5), counts[k] * tall, f'class="fill s{i % _COLOURS}"', tip))
    out.append(f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    for power in range(math.ceil(math.log10(max(p.edges[0], 1))), math.floor(math.log10(p.edges[-1])) + 1):
        x = left + (power * math.log(10) - log[0]) * scale
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" class="axis"/>')
        out.append(_text(x, bottom + 17, _shown(p.x, 10.0**power), "middle"))
    out.append(_text(right, bottom + 34, f"{header(p.x)}, logarithmic; up: how many", "end", "name"))
    return _svg(bottom + 42, p.title, out)


def _tree(p: Tree) -> str:
    left, right = float(_LABEL + 60), float(WIDTH - 70)
    out = []
    for i, (depth, label, start, share, detail) in enumerate(p.rows):
        y = _TOP + i * 20
        name = _short(label, max(12, 52 - 2 * depth))
        out.append(_text(8 + depth * 14, y + 12, name, tip=label if name != label else ""))
        x = left + start * (right - left)
        wide = max(share * (right - left), 0.8)
        out.append(_rect(x, y, wide, 15, f'class="fill s{depth % _COLOURS}"', f"{label}\n{detail}"))
        out.append(_text(x + wide + 5, y + 12, f"{share * 100:.1f} %"))
    return _svg(_TOP + len(p.rows) * 20 + 8, p.title, out)

"""The roofline for people: a narrow table, a picture in text, and one as SVG.

Both pictures have logarithmic axes: operations per byte of DRAM to the right, operations a second upwards. A slanted
line is a bandwidth, a level one the peak of a pipe; a kernel lies below the nearest of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from stepscope.model.result import Result
from stepscope.render.html.palette import COLOURS
from stepscope.render.inert import escape

#: What a table of that width can hold; JSON and CSV have all.
_SHOWN = (
    *("kernel", "name", "n", "dur_ns", "bound", "precision", "tflops", "intensity"),
    *("dram_pct", "roof_pct", "access", "why"),
)
_OF_REPORT = (
    *("roof_pct", "bound", "measured_pct", "torch_op", "module", "occupancy_pct"),
    *("achieved_occupancy_pct", "theoretical_occupancy_pct", "occupancy_limiter"),
)
#: What `kernels` leaves out in a terminal where the torch op stands beside the name.
_FOR_ROOM = ("variants", "mean_ns", "family")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LEAST_WIDTH, _HEIGHT = 40, 18
_COLOUR_OF = {"compute": "compute", "bandwidth": "comm", "latency": "late", "overhead": "copy"}


def narrowed(result: Result) -> Result:
    """The result with the columns that fit a terminal; of `kernels`, without those that only a report fills."""
    if result.command == "kernels":
        rows = result.rows
        empty = [c for c in _OF_REPORT if c in rows.columns and not rows[c].count()]
        if "achieved_occupancy_pct" in rows.columns:
            # The estimate of what is measured here; where nothing is, names need the room that what launches allow has.
            measured = "achieved_occupancy_pct" not in empty
            empty += ["occupancy_pct"] if measured else ["theoretical_occupancy_pct", "occupancy_limiter"]
        has_ops = "torch_op" in rows.columns and "torch_op" not in empty  # names need the room
        return replace(result, rows=rows.drop({*empty, *(_FOR_ROOM if has_ops else ())}, strict=False))
    if "roof_pct" not in result.rows.columns:
        return result
    kept = [name for name in _SHOWN if name in result.rows.columns]
    return replace(result, rows=result.rows.select(kept))


@dataclass(frozen=True)
class _Chart:
    """Points and roofs on logarithmic axes."""

    points: list[dict[str, Any]]
    bandwidths: list[tuple[str, float]]
    peaks: list[tuple[str, float]]
    x0: float
    x1: float
    y0: float
    y1: float

    def roof_at(self, intensity: float, gbps: float) -> float:
        """TFLOP/s under a bandwidth, up to the highest peak."""
        return min(intensity * gbps / 1e3, max((peak for _, peak in self.peaks), default=math.inf))


def _chart(result: Result) -> _Chart | None:
    points = [
        row
        for row in result.rows.iter_rows(named=True)
        if row.get("intensity") and row.get("tflops") and row["tflops"] > 0
    ]
    roofs = result.summary.get("roofs", [])
    bandwidths = [(roof["roof"], roof["bandwidth_gbps"]) for roof in roofs if roof["bandwidth_gbps"] is not None]
    peaks = [(roof["roof"], roof["peak_tflops"]) for roof in roofs if roof["peak_tflops"] is not None]
    if not points or not bandwidths:
        return None
    points.sort(key=lambda row: -(row["dur_ns"] or 0))
    xs = [row["intensity"] for row in points]
    dram = dict(bandwidths).get("DRAM", bandwidths[0][1])
    ridges = [1e3 * peak / dram for _, peak in peaks]
    low, high = min([*xs, 1.0]), max([*xs, *ridges])
    tops = [peak for _, peak in peaks] or [max(row["tflops"] for row in points)]
    bottom = min([row["tflops"] for row in points] + [low * dram / 1e3])
    return _Chart(points, bandwidths, peaks, low / 2, high * 3, bottom / 2, max(tops) * 2)


# -- in text -----------------------------------------------------------------------------------------------------------


def roofline_plot(result: Result, width: int) -> list[str]:
    """The picture as lines of text, with a legend of the kernels below it."""
    chart = _chart(result)
    if chart is None:
        return ["nothing to draw: no kernel has both FLOPs and bytes of DRAM"]
    wide = max(_LEAST_WIDTH, width - 12)
    cells = [[" "] * wide for _ in range(_HEIGHT)]
    for column in range(wide):
        intensity = _at(column, wide, chart.x0, chart.x1)
        for label, gbps in chart.bandwidths:
            _put(cells, column, chart, chart.roof_at(intensity, gbps), "·" if label != "DRAM" else "/")
        for _, peak in chart.peaks:
            dram = dict(chart.bandwidths).get("DRAM", chart.bandwidths[0][1])
            if intensity * dram / 1e3 >= peak:
                _put(cells, column, chart, peak, "─")
    letters = _letters(chart)
    for row in chart.points[::-1]:
        column = round(_place(row["intensity"], chart.x0, chart.x1) * (wide - 1))
        _put(cells, column, chart, row["tflops"], letters[row["name"], row["precision"]], over=True)
    out = ["TFLOP/s against FLOP per byte of DRAM, both logarithmic (/ DRAM, · L2 and L1, ─ peaks)"]
    for at, line in enumerate(cells):
        value = _at(_HEIGHT - 1 - at, _HEIGHT, chart.y0, chart.y1)
        out.append(f"{_short(value) if at % 3 == 0 else '':>8} │{''.join(line).rstrip()}")
    ticks = [" "] * wide
    for power in range(math.ceil(math.log10(chart.x0)), math.floor(math.log10(chart.x1)) + 1):
        at = round(_place(10.0**power, chart.x0, chart.x1) * (wide - 1))
        for i, letter in enumerate(_short(10.0**power)):
            if at + i < wide:
                ticks[at + i] = letter
    out += [f"{'':>8} └{'─' * wide}", f"{'':>10}{''.join(ticks).rstrip()}"]
    seen = dict.fromkeys((row["name"], row["precision"]) for row in chart.points)
    out += [f"{letters[key]}  {key[0]} ({key[1]})" for key in list(seen)[: len(_LETTERS)]]
    return [line[:width] if len(line) > width else line for line in out]


def _letters(chart: _Chart) -> dict[tuple[str, str], str]:
    """A letter for every name, in the order of their time."""
    keys = dict.fromkeys((row["name"], row["precision"]) for row in chart.points)
    return {key: _LETTERS[min(at, len(_LETTERS) - 1)] for at, key in enumerate(keys)}


def _put(cells: list[list[str]], column: int, chart: _Chart, value: float, mark: str, over: bool = False) -> None:
    if not value > 0:
        return
    line = round((1 - _place(value, chart.y0, chart.y1)) * (_HEIGHT - 1))
    if 0 <= line < _HEIGHT and 0 <= column < len(cells[0]) and (over or cells[line][column] == " "):
        cells[line][column] = mark


def _place(value: float, low: float, high: float) -> float:
    """From 0 to 1 on a logarithmic axis."""
    return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))


def _at(cell: int, cells: int, low: float, high: float) -> float:
    return math.exp(math.log(low) + math.log(high / low) * cell / (cells - 1))


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


# -- as SVG ------------------------------------------------------------------------------------------------------------

_WIDTH, _TALL = 960, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 24, 52


def roofline_svg(result: Result) -> str:
    """The picture as one `<svg>` that needs no style sheet: for slides and issues."""
    chart = _chart(result)
    if chart is None:
        return _svg([_text(_LEFT, 40, "nothing to draw: no kernel has both FLOPs and bytes of DRAM")])
    ink, dim, line, paper = (COLOURS[name][0] for name in ("ink", "dim", "line", "paper"))
    parts = [f'<rect width="{_WIDTH}" height="{_TALL}" fill="{paper}"/>', *_grid(chart, line)]
    for label, gbps in chart.bandwidths:
        parts.append(_slope(chart, label, gbps, dim))
    for label, peak in chart.peaks:
        parts.append(_level(chart, label, peak, ink))
    most = max((row["dur_ns"] or 1) for row in chart.points)
    for row in chart.points:
        colour = COLOURS[_COLOUR_OF.get(row["bound"] or "", "barrier")][0]
        radius = 4 + 8 * math.sqrt((row["dur_ns"] or 0) / most)
        tip = (
            f"{row['name']}\n{row['tflops']:.3g} TFLOP/s, {row['intensity']:.3g} FLOP/byte, {row['dur_ns']} ns\n"
            f"bound by {row['bound']}: {row['why']}"
        )
        parts.append(
            f'<circle cx="{_x(chart, row["intensity"]):.1f}" cy="{_y(chart, row["tflops"]):.1f}" r="{radius:.1f}" '
            f'fill="{colour}" fill-opacity="0.75" stroke="{paper}"><title>{escape(tip)}</title></circle>'
        )
    for at, (by, colour) in enumerate(_COLOUR_OF.items()):
        x = _LEFT + 16 + at * 150
        parts.append(f'<circle cx="{x}" cy="{_TALL - 14}" r="5" fill="{COLOURS[colour][0]}"/>')
        parts.append(_text(x + 10, _TALL - 10, f"{by}-bound", dim))
    parts.append(_text(_WIDTH - _RIGHT, _TALL - 10, "FLOP per byte of DRAM; area: time", dim, "end"))
    parts.append(_text(_LEFT, _TOP - 8, "TFLOP/s", dim))
    return _svg(parts)


def _svg(parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_TALL}" role="img" aria-label="roofline" '
        f'font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg>\n'
    )


def _text(x: float, y: float, text: str, colour: str = "#000", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _x(chart: _Chart, value: float) -> float:
    return _LEFT + _place(value, chart.x0, chart.x1) * (_WIDTH - _LEFT - _RIGHT)


def _y(chart: _Chart, value: float) -> float:
    return _TALL - _BOTTOM - _place(value, chart.y0, chart.y1) * (_TALL - _TOP - _BOTTOM)


def _grid(chart: _Chart, colour: str) -> list[str]:
    out, dim = [], COLOURS["dim"][0]
    for power in range(math.ceil(math.log10(chart.x0)), math.floor(math.log10(chart.x1)) + 1):
        x = _x(chart, 10.0**power)
        out.append(f'<path d="M{x:.1f} {_TOP}V{_TALL - _BOTTOM}" stroke="{colour}"/>')
        out.append(_text(x, _TALL - _BOTTOM + 16, _short(10.0**power), dim, "middle"))
    for power in range(math.ceil(math.log10(chart.y0)), math.floor(math.log10(chart.y1)) + 1):
        y = _y(chart, 10.0**power)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{colour}"/>')
        out.append(_text(_LEFT - 8, y + 4, _short(10.0**power), dim, "end"))
    return out


def _slope(chart: _Chart, label: str, gbps: float, colour: str) -> str:
    """A bandwidth, from the left or lower edge to the highest peak."""
    start = max(chart.x0, 1e3 * chart.y0 / gbps)
    end = min(chart.x1, 1e3 * max((peak for _, peak in chart.peaks), default=chart.y1) / gbps)
    x, y = _x(chart, start), _y(chart, start * gbps / 1e3)
    right, top = _x(chart, end), _y(chart, end * gbps / 1e3)
    dash = "" if label == "DRAM" else ' stroke-dasharray="4 4"'
    turned = math.degrees(math.atan2(top - y, right - x))
    name = _text(-14, -5, f"{label} {gbps / 1e3:.2f} TB/s", colour, "end")
    name = f'<g transform="translate({right:.1f} {top:.1f}) rotate({turned:.1f})">{name}</g>'
    return f'<path d="M{x:.1f} {y:.1f}L{right:.1f} {top:.1f}" stroke="{colour}" stroke-width="1.5"{dash}/>{name}'


def _level(chart: _Chart, label: str, peak: float, colour: str) -> str:
    """The peak of a pipe, from where the bandwidth of DRAM reaches it to the right edge."""
    dram = dict(chart.bandwidths).get("DRAM", chart.bandwidths[0][1])
    x, y = _x(chart, max(chart.x0, 1e3 * peak / dram)), _y(chart, peak)
    name = _text(_WIDTH - _RIGHT - 4, y - 6, f"{label} {peak:.0f} TFLOP/s", colour, "end")
    return f'<path d="M{x:.1f} {y:.1f}H{_WIDTH - _RIGHT}" stroke="{colour}" stroke-width="1.5"/>{name}'

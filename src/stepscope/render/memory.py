"""The memory ledger for people: a narrow table, the parts over time in text, and the same as SVG."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.result import Result
from stepscope.model.units import duration, size
from stepscope.render.html.palette import COLOURS
from stepscope.render.inert import escape
from stepscope.report.sections.memory import KINDS

#: Columns that JSON and CSV have, and a terminal has no room for; and those that only estimates fill.
_WIDE, _IF_FILLED = (
    ("grows_with",),
    ("estimate_bytes", "most_bytes", "blocks", "call", "call_ns", "idle_ns"),
)
_LETTERS = {
    "weights": "W", "optimizer states": "S", "gradients": "G", "activations": "A", "temporary": "T",
    "communication": "C", "KV cache": "K", "unknown": "?",
}  # fmt: skip
_RESERVED = "·"
_LEAST_WIDTH, _HEIGHT = 40, 16
_WIDTH, _TALL, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 380, 84, 170, 16, 36


def narrowed(result: Result) -> Result:
    """The result with the columns that fit a terminal."""
    rows = result.rows
    if "reserved_bytes" in rows.columns or not rows.height:  # over time: all of it is drawn
        return result
    alone = rows.select(pl.struct("rank", "device").n_unique()).item() == 1
    empty = {c for c in _IF_FILLED if c in rows.columns and not rows[c].count()}
    return replace(result, rows=rows.drop({*(("rank", "device") if alone else ()), *empty, *_WIDE}, strict=False))


@dataclass(frozen=True)
class _Device:
    """One device over time: each part's bytes, from the bottom up."""

    title: str
    times: list[int] | None
    reserved: list[int]
    parts: dict[str, list[int]]

    @property
    def most(self) -> int:
        return max(1, *self.reserved)

    def highest(self, first: int, last: int) -> int:
        """Of these slices the one in which most is given out."""
        return max(range(first, last), key=lambda i: sum(values[i] for values in self.parts.values()))


def _devices(result: Result) -> list[_Device]:
    rows = result.rows
    if "reserved_bytes" not in rows.columns:
        raise BadInput("the picture of `memory` is that of its parts over time", "add --by time")
    devices = []
    for (rank, device), mine in rows.group_by(["rank", "device"], maintain_order=True):
        columns = {name: f"{name.replace(' ', '_')}_bytes" for name in KINDS}
        parts = {name: mine[c].to_list() for name, c in columns.items() if c in mine.columns and _any(mine[c])}
        times = None if mine["start_ns"].null_count() else mine["start_ns"].to_list()
        devices.append(_Device(f"rank {rank}, device {device}", times, mine["reserved_bytes"].to_list(), parts))
    return devices


def _any(column: pl.Series) -> bool:
    return bool((column > 0).any())


def memory_plot(result: Result, width: int) -> list[str]:
    """A letter for what holds the memory: upwards bytes, to the right the events of the recording."""
    lines: list[str] = []
    for device in _devices(result):
        room = max(_LEAST_WIDTH, width - 12)
        n = len(device.reserved)
        columns = (
            list(range(n)) if n <= room else [device.highest(i * n // room, (i + 1) * n // room) for i in range(room)]
        )
        lines.append(f"{device.title}: a column is a slice of the events, at its highest moment")
        for level in range(_HEIGHT, 0, -1):
            height = device.most * (level - 0.5) / _HEIGHT
            label = size(device.most * level / _HEIGHT) if level in (_HEIGHT, _HEIGHT // 2) else ""
            lines.append(f"{label:>10} │" + "".join(_cell(device, i, height) for i in columns).rstrip())
        lines.append(f"{'0 B':>10} └" + "─" * len(columns))
        keys = [f"{_LETTERS[name]} {name}" for name in device.parts] + [f"{_RESERVED} reserved, not given out"]
        lines += [f"{'':>10}  {', '.join(keys)}", ""]
    return lines[:-1]


def _cell(device: _Device, at: int, height: float) -> str:
    level = 0
    for name, values in device.parts.items():
        level += values[at]
        if height < level:
            return _LETTERS[name]
    return _RESERVED if height < device.reserved[at] else " "


def memory_svg(result: Result) -> str:
    """The parts over time, stacked, one picture per device; the line above is what is reserved."""
    devices = _devices(result)
    pictures = [_picture(device, i * (_TALL + 24)) for i, device in enumerate(devices)]
    height = len(devices) * (_TALL + 24)
    ink, paper = COLOURS["ink"][0], COLOURS["paper"][0]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="memory over time" font-family="system-ui,sans-serif" font-size="12" fill="{ink}">'
        f'<rect width="100%" height="100%" fill="{paper}"/>{"".join(pictures)}</svg>\n'
    )


def _picture(device: _Device, down: int) -> str:
    n = len(device.reserved)
    across, tall = _WIDTH - _LEFT - _RIGHT, _TALL - _TOP - _BOTTOM - 20
    times = device.times or list(range(n))
    first, last = times[0], max(times[-1], times[0] + 1)
    x = [_LEFT + across * (t - first) / (last - first) for t in times]
    foot = down + _TOP + 20 + tall

    def y(value: float) -> float:
        return foot - tall * value / device.most

    out = [f'<text x="{_LEFT}" y="{down + _TOP + 4}" font-weight="600">{escape(device.title)}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = y(device.most * share)
        out.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + across}" y1="{at:.1f}" y2="{at:.1f}" stroke="{COLOURS["line"][0]}"/>'
        )
        out.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{size(device.most * share)}</text>')
    low = [0] * n
    key = down + _TOP + 30
    for name, values in device.parts.items():
        high = [a + b for a, b in zip(low, values, strict=True)]
        points = [*zip(x, map(y, high), strict=True), *reversed(list(zip(x, map(y, low), strict=True)))]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        colour = COLOURS[KINDS[name]][0]
        out.append(
            f'<polygon points="{path}" fill="{colour}"><title>{name}: {size(max(values))} at most</title></polygon>'
        )
        out.append(f'<rect x="{_WIDTH - _RIGHT + 14}" y="{key - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{_WIDTH - _RIGHT + 32}" y="{key}">{name}</text>')
        low, key = high, key + 20
    line = " ".join(f"{a:.1f},{y(b):.1f}" for a, b in zip(x, device.reserved, strict=True))
    out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS["ink"][0]}" stroke-width="1.5"/>')
    out.append(f'<text x="{_WIDTH - _RIGHT + 14}" y="{key + 4}">— reserved</text>')
    span = duration(last - first) if device.times else f"{n} slices"
    out.append(f'<text x="{_LEFT + across}" y="{foot + 18}" text-anchor="end">{span}</text>')
    return "".join(out)

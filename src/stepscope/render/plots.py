"""Pictures of answers, for notebooks: steps, the budget, where each rank's time went, a timeline. Plain SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.model.result import Result
from stepscope.model.units import about, duration
from stepscope.render.html.palette import variables
from stepscope.render.html.shell import page
from stepscope.render.inert import escape

_WIDTH, _LABELS, _ROW = 960, 150, 22
#: Marks of a timeline; of more, the longest are drawn.
_MOST_MARKS = 6_000
_CLASS = "stepscope-plot"
_STYLE = (
    "svg{display:block;width:100%;max-width:960px;height:auto;background:var(--paper);color:var(--ink)}"
    "text{font:12px system-ui,sans-serif;fill:var(--ink)}.dim{fill:var(--dim)}"
)
_PARTS = (
    ("compute", "compute_ns", "compute"),
    ("exposed communication", "comm_exposed_ns", "comm"),
    ("exposed copies", "copy_exposed_ns", "copy"),
    ("idle", "idle_ns", "idle"),
)
#: A bar's pieces: label, value, colour, what is said of it.
Piece = tuple[float, str, str]


@dataclass(frozen=True)
class Plot:
    """A picture: a notebook shows it; `save("steps.svg")` or `.html` keeps it."""

    title: str
    svg: str

    def save(self, path: str | Path) -> Path:
        """Write it, by the suffix: .svg or .html."""
        file = Path(path)
        if file.suffix not in (".svg", ".html"):
            raise BadInput(f"{file}: a picture is SVG or a page", "end it in .svg or .html")
        text = page(self.title, _STYLE, self.svg) if file.suffix == ".html" else self._alone()
        whole.write(file, text.encode(), "{}")
        return file

    def __repr__(self) -> str:
        return f"<a picture, {self.title}: a notebook shows it, .save('picture.svg') keeps it>"

    def _repr_html_(self) -> str:
        style = variables().replace(":root", f".{_CLASS}") + "".join(f".{_CLASS} {rule}}}" for rule in _rules())
        return f'<div class="{_CLASS}"><style>{style}</style>{self.svg}</div>'

    def _alone(self) -> str:
        return self.svg.replace(">", f"><style>{variables()}{_STYLE}</style>", 1)


def _rules() -> list[str]:
    return [rule for rule in _STYLE.split("}") if rule]


def plot(result: Result) -> Plot:
    """The picture of an answer, where there is one."""
    drawing = _DRAWN.get(result.command)
    if drawing is None or (result.command == "compute" and "loss" not in result.rows.columns):
        there = "iterations(), compute(by='budget'), breakdown() and timeline()"
        raise BadInput(f"plot: no picture of {result.command}", f"there are some of {there}")
    if result.rows.height == 0:
        raise BadInput("plot: the answer has no rows", "ask about another window")
    title, body, height = drawing(result)
    svg = (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title, True)}" '
        f'xmlns="http://www.w3.org/2000/svg"><text x="4" y="16" font-weight="600">{escape(title)}</text>{body}</svg>'
    )
    return Plot(title, svg)


def _steps(result: Result) -> tuple[str, str, int]:
    """A bar per step and rank, from zero; outliers in another colour."""
    timed = next(c for c in ("period_ns", "gpu_ns", "cpu_ns") if result.rows[c].count())
    rows = result.rows.drop_nulls(timed)
    most = max(int(rows[timed].max() or 1), 1)  # type: ignore[arg-type]
    body, y = "", 26
    for (rank,), of_rank in rows.group_by("rank", maintain_order=True):
        body += f'<text class="dim" x="4" y="{y + 44}">rank {rank}</text>'
        wide = (_WIDTH - _LABELS) / of_rank.height
        for k, (label, ns, odd) in enumerate(of_rank.select("label", timed, "outlier").iter_rows()):
            tall = 56 * ns / most
            colour = "late" if odd else "compute"
            body += _rect(
                _LABELS + k * wide, y + 56 - tall, wide - min(2, wide / 4), tall, colour, f"{label}: {duration(ns)}"
            )
        y += 66
    return f"{timed.removesuffix('_ns')} of every step, full height {about(most)}", body, y


def _budget(result: Result) -> tuple[str, str, int]:
    """From the FLOPs at the peak down to the step, one below the other; the first rank."""
    first = result.rows["rank"][0]
    rows = result.rows.filter(pl.col("rank") == first)
    whole_ns = max(int(rows["total_ns"].sum()), 1)
    body, y, done = "", 26, 0
    for loss, ns, share, what in rows.select("loss", "total_ns", "share_pct", "what").iter_rows():
        x, wide = _LABELS + (_WIDTH - _LABELS - 110) * done / whole_ns, (_WIDTH - _LABELS - 110) * ns / whole_ns
        body += f'<text class="dim" x="4" y="{y + 14}">{escape(str(loss)[:24])}</text>'
        body += _rect(
            x, y + 2, max(wide, 0.5), _ROW - 6, "compute" if loss == "ideal" else "late", f"{what}: {duration(ns)}"
        )
        body += f'<text x="{x + wide + 5:.1f}" y="{y + 14}">{about(ns)}, {share:.1f} %</text>'
        done += ns
        y += _ROW
    return f"from the FLOPs at the peak down to the step of {about(whole_ns)} (rank {first})", body, y + 4


def _parts(result: Result) -> tuple[str, str, int]:
    """A bar per rank, of where its time went."""
    most = max(int(result.rows["window_ns"].max() or 1), 1)  # type: ignore[arg-type]
    body, y = "", 26
    for row in result.rows.iter_rows(named=True):
        pieces = [(row[key], colour, f"{title}: {duration(row[key])}") for title, key, colour in _PARTS]
        body += f'<text class="dim" x="4" y="{y + 14}">rank {row["rank"]}</text>{_bar(pieces, most, y)}'
        y += _ROW
    for k, (title, _, colour) in enumerate(_PARTS):
        x = _LABELS + 170 * k
        body += f'{_rect(x, y + 6, 11, 11, colour, title)}<text x="{x + 16}" y="{y + 16}">{title}</text>'
    return f"where the window of {about(most)} went", body, y + 26


def _bar(pieces: Sequence[Piece], most: int, y: float) -> str:
    out, x = "", float(_LABELS)
    for ns, colour, tip in pieces:
        wide = (_WIDTH - _LABELS) * ns / most
        out += _rect(x, y + 2, wide, _ROW - 6, colour, tip) if wide else ""
        x += wide
    return out


def _timeline(result: Result) -> tuple[str, str, int]:
    """A row per rank and stream, a box per op."""
    if "stream" not in result.rows.columns:
        raise BadInput("plot: only the timeline of ops has a picture", "ask timeline() without by")
    rows = result.rows.sort("dur_ns", descending=True).head(_MOST_MARKS)
    low, high = int(rows["start_ns"].min()), int(rows["end_ns"].max())  # type: ignore[arg-type]
    scale = (_WIDTH - _LABELS) / max(high - low, 1)
    body, y = "", 26
    # Ranks in their order, and of each the streams that have most to do first.
    busy = rows.group_by("rank", "stream").agg(pl.col("dur_ns").sum()).sort("rank", -pl.col("dur_ns"), "stream")
    streams = rows.partition_by("rank", "stream", as_dict=True)
    for rank, stream in busy.select("rank", "stream").iter_rows():
        ops = streams[rank, stream]
        body += f'<text class="dim" x="4" y="{y + 14}">rank {rank}, stream {stream}</text>'
        for start, ns, role, name in ops.select("start_ns", "dur_ns", "role", "name").iter_rows():
            colour = role if role in ("comm", "copy") else "compute"
            body += _rect(
                _LABELS + (start - low) * scale,
                y + 2,
                max(ns * scale, 0.4),
                _ROW - 6,
                colour,
                f"{name[:120]}: {duration(ns)}",
            )
        y += _ROW
    left_out = result.rows.height - rows.height
    more = f"; the {left_out:,} shortest ops are not drawn" if left_out else ""
    return f"{about(high - low)} of {rows.height:,} ops{more}", body, y + 4


def _rect(x: float, y: float, wide: float, tall: float, colour: str, tip: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(wide, 0):.2f}" height="{tall:.2f}" style="fill:var(--{colour})">'
        f"<title>{escape(tip)}</title></rect>"
    )


_DRAWN: dict[str, Callable[[Result], tuple[str, str, int]]] = {
    "iterations": _steps,
    "compute": _budget,
    "breakdown": _parts,
    "timeline": _timeline,
}

"""The interactive timeline: every op of the window on its rank's streams, with the ranges that launched it.

The page gets the scene that a server answers views from (`timeline`), with so many marks that it draws smoothly. Times
are nanoseconds since the first op on the clock of all ranks; a rank's `Line` brings them back to its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.errors import CannotAnswer
from stepscope.files import budget
from stepscope.model.command_line import command_line
from stepscope.model.result import Result
from stepscope.report.asker import Asker
from stepscope.report.messages.page import TimelineContent
from stepscope.report.part import Part, part
from stepscope.timeline.block import carried
from stepscope.timeline.counters import chosen, samples
from stepscope.timeline.kinds import MARKS
from stepscope.timeline.messages import Group, Place, WindowSpan
from stepscope.timeline.ranks import ranks_of_setup
from stepscope.timeline.rows import Making, Ops, Row
from stepscope.timeline.scale import placed, ranked, scales
from stepscope.timeline.scene import arranged

TITLE = "Timeline"
#: Marks that a page still opens and redraws smoothly with; of a counter, those of a row.
MOST: dict[Group, int] = {"streams": 200_000, "ranges": 40_000, "parts": 60_000, "host": 60_000, "counters": 2_000}
#: Work by role, as the page calls it.
_FAMILIES = ("compute", "communication", "copies")


@dataclass(frozen=True)
class Timeline:
    """The part, its block of numbers, and by rank how its own times are drawn."""

    part: Part
    block: str
    scales: dict[int, Line]

    def placed(self, where: dict[str, Any]) -> Place | None:
        """A moment of a rank's own clock as it is drawn; None for a rank that is not."""
        return placed(where, self.scales)


def _window(asker: Asker) -> dict[str, Any]:
    """What findings are about: the step; the capture, where the trainer marks chunks alone."""
    if asker.window:
        chosen = {key for key, value in asker.window.items() if value} - {"index"}
        return {} if chosen or asker.window.get("index") == "all" else {"step": True}
    window = asker.ask("breakdown").window
    return {"whole": True} if window and window[0].get("kind") == "capture" else {"step": True}


def make(asker: Asker) -> Timeline:
    which = _window(asker)
    making = Making({}, asker.ask("streams").rows)
    # Answers are large, and the arrays that they become are not: one at a time is held.
    ops = asker.ask("timeline", **which)
    if ops.rows.height == 0:
        raise CannotAnswer("no GPU work in the window", "choose another with --index or --anchor")
    n_ops, first_op = ops.rows.height, int(ops.rows["common_start_ns"].min())  # type: ignore[arg-type]
    of_ops = {rank: _ops(frame, making) for rank, frame in ranked(ops.rows)}
    ops = replace(ops, rows=ops.rows.clear())
    budget.settle()
    parts = asker.ask("timeline", by="part", **which).rows
    lines = scales(parts, min(first_op, int(parts["common_start_ns"].min())))  # type: ignore[arg-type]
    making.lines.update(lines)
    shown = {rank: (int(of["start_ns"].min()), int(of["end_ns"].max())) for rank, of in ranked(parts)}  # type: ignore[arg-type]
    rows: list[Row] = [row for rank, frame in ranked(parts) for row in making.of_parts(rank, frame)]
    del parts
    ranges = asker.ask("timeline", by="range", **which).rows
    rows += (row for rank, frame in ranked(ranges) if rank in lines for row in making.of_ranges(rank, frame))
    del ranges
    budget.settle()
    rows += (row for rank in lines if rank in of_ops for row in making.of_ops(rank, of_ops.pop(rank)))
    rows += _counters(asker, which, shown, making)
    ends = max((w["cpu_end_ns"] for w in ops.window if w["cpu_end_ns"] is not None), default=0)
    for host in asker.ask_each("timeline", lines, by="host", **which):
        rows += _host(host.rows, ends, shown, making)
    budget.settle()
    scene = arranged(making, rows)
    marks, block, merged = carried(scene, MOST)
    measured = asker.ask("window")
    windows = {rank: _windows(measured, rank, line) for rank, line in lines.items()}
    full = scene.texts.to_list()
    made = part(
        "timeline",
        TITLE,
        asker.command("timeline", **which),
        ops,
        TimelineContent(
            plain=command_line("timeline", *asker.paths),
            drawing=scene.drawing(ranks_of_setup(asker.ask("setup")), n_ops, windows, []),
            marks=marks,
            texts=[[s] if s == text else [s, text] for s, text in zip(scene.short, full, strict=True)],
            left_out=merged,
        ),
    )
    first = {w["rank"]: w["gpu_start_ns"] for w in ops.window if w["gpu_start_ns"] is not None}
    if any(lines[rank].own < start for rank, start in first.items() if rank in lines):
        made.windows.append("drawn from the moment that the host begins the step")
    return Timeline(made, block, lines)


def _ops(rows: pl.DataFrame, making: Making) -> Ops:
    """Ops of one rank, with the range and the stage that launched each."""
    role = rows["role"].replace_strict({role: i for i, role in enumerate(MARKS[:3])}, return_dtype=pl.Int64).to_numpy()
    return Ops(
        rows["start_ns"].to_numpy(),
        rows["end_ns"].to_numpy(),
        rows["stream"].to_numpy(),
        role,
        making.families.ids(_FAMILIES)[role],
        making.texts.ids(rows["name"]),
        {
            "range": making.texts.ids(rows["range"]),
            "stage": making.texts.ids(rows["stage"]),
            "outside": (~rows["inside"]).cast(pl.Int64).to_numpy(),
        },
    )


def _host(host: pl.DataFrame, ends: int, shown: dict[int, tuple[int, int]], making: Making) -> Iterator[Row]:
    """What the host did in the drawn time: a range around the whole program would make the drawing as long as that."""
    for rank, frame in ranked(host):
        if rank in making.lines:
            lo, hi = shown[rank][0], max(shown[rank][1], ends)
            cut = frame.with_columns(pl.col("start_ns").clip(lo, None), pl.col("end_ns").clip(None, hi))
            yield from making.of_host(rank, cut.filter(pl.col("end_ns") >= pl.col("start_ns")))


def _counters(asker: Asker, which: dict[str, Any], shown: dict[int, tuple[int, int]], making: Making) -> Iterator[Row]:
    """How busy the GPU was, what its memory did, its clock; others are in `timeline --by counter` and `serve`."""
    try:
        rows = asker.ask("timeline", by="counter", **which).rows
    except CannotAnswer:
        return
    for rank, frame in ranked(rows):
        if rank in making.lines:
            for level, (label, unit, start, value) in enumerate(samples(chosen(frame))):
                yield making.of_samples(rank, level, label, unit, np.maximum(start, shown[rank][0]), value)


def _windows(measured: Result, rank: int, line: Line) -> list[WindowSpan]:
    """The windows of the other figures on this rank, as they are drawn."""
    ends = [(w["gpu_start_ns"], w["gpu_end_ns"], w["label"]) for w in measured.window if w["rank"] == rank]
    return [
        {"start": line.moment(start), "end": line.moment(end), "label": label}
        for start, end, label in ends
        if start is not None and end is not None
    ]

"""The interactive timeline: every op of the window on its rank's streams, with the ranges that launched it above.

The page gets columns of numbers, sorted by lane and start (`pack`), and a table of texts. Times are nanoseconds since
the first op on the clock of all ranks; a rank's `scale` brings them back to its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.errors import CannotAnswer
from stepscope.files import budget
from stepscope.intervals.arrays import numbered
from stepscope.model.command_line import command_line
from stepscope.model.kernel_names import kernel_base
from stepscope.model.result import Result
from stepscope.model.units import about
from stepscope.report.asker import Asker
from stepscope.report.counters import sampled
from stepscope.report.lanes import (
    COUNTERS,
    GROUPS,
    HOST_LANES,
    KINDS,
    MARKS,
    PART_LANE,
    PARTS,
    RANGE_LANES,
    STREAMS,
    THREAD,
    Labels,
)
from stepscope.report.pack import Columns
from stepscope.report.part import Part, part
from stepscope.report.scale import placed, ranked, scales
from stepscope.report.thin import shares, thin

TITLE = "Timeline"
#: Marks that a page still opens and redraws smoothly with.
MOST_OPS, MOST_RANGES, MOST_PARTS, MOST_HOST = 200_000, 40_000, 60_000, 60_000


@dataclass(frozen=True)
class Timeline:
    """The part, its block of numbers, and by rank how its own times are drawn."""

    part: Part
    block: str
    scales: dict[int, Line]

    def placed(self, where: dict[str, Any]) -> dict[str, Any] | None:
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
    texts = _Texts()
    # Answers are large, and the marks that they become are not: one at a time is held.
    ops = asker.ask("timeline", **which)
    if ops.rows.height == 0:
        raise CannotAnswer("no GPU work in the window", "choose another with --index or --anchor")
    of_ops = _op_marks(ops.rows, texts)
    ops = replace(ops, rows=ops.rows.clear())
    budget.settle()
    parts = asker.ask("timeline", by="part", **which).rows
    origin = min(int(of_ops["start"].min()), int(parts["common_start_ns"].min()))  # type: ignore[arg-type]
    by_rank = scales(parts, origin)
    shown = {rank: (int(of["start_ns"].min()), int(of["end_ns"].max())) for rank, of in ranked(parts)}  # type: ignore[arg-type]
    counters = sampled(asker, which, parts, origin)
    of_parts = _kept(_since(origin, _part_marks(parts)), MOST_PARTS, _LANE, "parts")
    n_ops, parts = of_ops.height, parts.clear()
    budget.settle()
    measured = asker.ask("window")
    marks = _kept(_since(origin, of_ops), MOST_OPS, (*_LANE, "kind"), "ops")
    of_ops = of_ops.clear()
    ranges = _range_marks(asker.ask("timeline", by="range", **which).rows, texts)
    marks += _kept(_since(origin, ranges), MOST_RANGES, _LANE, "ranges") + of_parts
    budget.settle()
    host, threads = _host_marks(asker.ask("timeline", by="host", **which), shown, by_rank, texts)
    budget.settle()
    marks += _kept(host, MOST_HOST, _LANE, "host ranges and calls")
    marks += [(counters.marks, "")] if counters.marks.height else []
    said = [note for _, note in marks if note]
    block, lanes, columns = _packed([frame for frame, _ in marks], Labels(asker, threads, counters.labels))
    made = part(
        "timeline",
        TITLE,
        asker.command("timeline", **which),
        ops,
        plain=command_line("timeline", *asker.paths),
        kinds=KINDS,
        lanes=lanes,
        columns=columns,
        texts=texts.list(),
        ranks=[
            {"rank": rank, "windows": _windows(measured, rank, scale), **_scale(scale)}
            for rank, scale in sorted(by_rank.items())
        ],
        ops=n_ops,
        left_out=said,
    )
    first = {w["rank"]: w["gpu_start_ns"] for w in ops.window if w["gpu_start_ns"] is not None}
    if any(by_rank[rank].own < start for rank, start in first.items() if rank in by_rank):
        made.windows.append("drawn from the moment that the host begins the step")
    return Timeline(made, block, by_rank)


class _Texts:
    """Texts by number, each once; kernels with the short name that fits into a box."""

    def __init__(self) -> None:
        self._ids: dict[str | None, int] = {None: 0}

    def ids(self, values: pl.Series) -> pl.Series:
        for text in values.unique(maintain_order=True).to_list():
            self._ids.setdefault(text, len(self._ids))
        return values.replace_strict(self._ids, return_dtype=pl.Int32)

    def list(self) -> list[list[str]]:
        """`[short, full]`, or one text where they are the same."""
        out = []
        for text in self._ids:
            short = kernel_base(text or "")
            out.append([short] if short == (text or "") else [short, text or ""])
        return out


#: Lanes are in order of rank, then what they hold, then depth of ranges, or stream.
_LANE = ("rank", "group", "level")


def _since(origin: int, marks: pl.DataFrame) -> pl.DataFrame:
    """Marks that begin to count there."""
    return marks.with_columns(pl.col("start", "end") - origin) if marks.height else marks


def _frame(rows: pl.DataFrame, group: int, **columns: Any) -> pl.DataFrame:
    start = rows["common_start_ns"]
    return pl.DataFrame(
        {
            "rank": rows["rank"].cast(pl.Int32),
            "group": _all(rows, group),
            "start": start,
            "end": start + rows["dur_ns"],
            **columns,
        }
    )


def _op_marks(rows: pl.DataFrame, texts: _Texts) -> pl.DataFrame:
    return _frame(
        rows,
        STREAMS,
        level=rows["stream"].cast(pl.Int32),
        kind=rows["role"].replace_strict({k: i for i, k in enumerate(MARKS[:3])}, return_dtype=pl.Int32),
        name=texts.ids(rows["name"]),
        range=texts.ids(rows["range"]),
        stage=texts.ids(rows["stage"]),
        outside=(~rows["inside"]).cast(pl.Int32),
        n=_all(rows, 1),
    )


def _range_marks(rows: pl.DataFrame, texts: _Texts) -> pl.DataFrame:
    if rows.height == 0:
        return pl.DataFrame()
    kind, name = _all(rows, MARKS.index("range")), texts.ids(rows["range"])
    return _frame(rows, RANGE_LANES, level=rows["depth"].cast(pl.Int32), kind=kind, name=name, **_no(rows))


def _part_marks(rows: pl.DataFrame) -> pl.DataFrame:
    number = {part: len(MARKS) + k for k, part in enumerate(PARTS)}
    kind = rows["part"].replace_strict(number, return_dtype=pl.Int32)
    return _frame(rows, PART_LANE, level=_all(rows, 0), kind=kind, name=_all(rows, 0), **_no(rows))


def _host_marks(
    host: Result, shown: dict[int, tuple[int, int]], by_rank: dict[int, Line], texts: _Texts
) -> tuple[pl.DataFrame, dict[int, list[int]]]:
    """What the host did in the drawn time, and the threads of each rank. A rank at a time: hosts do more than GPUs."""
    if host.rows.height == 0:
        return pl.DataFrame(), {}
    ends = max((w["cpu_end_ns"] for w in host.window if w["cpu_end_ns"] is not None), default=0)
    frames, threads = [], {}
    for rank, rows in ranked(host.rows):
        if rank in by_rank:
            drawn = shown[rank][0], max(shown[rank][1], ends)
            frame, threads[rank] = _host_of_rank(rows, drawn, by_rank[rank], texts)
            frames.append(frame)
    return pl.concat(frames) if frames else pl.DataFrame(), threads


def _host_of_rank(
    rows: pl.DataFrame, drawn: tuple[int, int], scale: Line, texts: _Texts
) -> tuple[pl.DataFrame, list[int]]:
    """A range around the whole program would make the drawing as long as that: it is cut."""
    start, end = rows["start_ns"].clip(drawn[0], None), rows["end_ns"].clip(None, drawn[1])
    kept = end >= start
    rows, start, end = rows.filter(kept), start.filter(kept), end.filter(kept)
    ids, place = numbered(rows["tid"].to_numpy())
    is_call = (rows["kind"] == "call").to_numpy()
    level = place * THREAD + np.where(is_call, THREAD - 1, rows["depth"].to_numpy().clip(0, THREAD - 2))
    kind = np.where(is_call, np.int32(MARKS.index("call")), np.int32(MARKS.index("range")))
    placed = pl.Series("common_start_ns", scale.at(start.to_numpy()))
    frame = pl.DataFrame([rows["rank"], placed, (end - start).alias("dur_ns")])
    name = texts.ids(rows["name"])
    return _frame(frame, HOST_LANES, level=level.astype(np.int32), kind=kind, name=name, **_no(frame)), ids.tolist()


def _all(rows: pl.DataFrame, value: int, dtype: type[np.signedinteger[Any]] = np.int32) -> pl.Series:
    return pl.Series(np.full(rows.height, value, dtype))


def _no(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """What ranges and parts do not have: in a byte each, as there are millions. Merged marks count further."""
    none = {column: _all(rows, 0, np.int8) for column in ("range", "stage", "outside")}
    return {**none, "n": _all(rows, 1)}


def _kept(marks: pl.DataFrame, most: int, by: tuple[str, ...], what: str) -> list[tuple[pl.DataFrame, str]]:
    """The marks to draw, and what to say of those that were merged."""
    if marks.height == 0:
        return []
    kept, bin_ns = (shares if what == "parts" else thin)(marks, most, by)
    if not bin_ns:
        return [(kept, "")]
    merged = kept.filter(pl.col("n") > 1)
    note = (
        f"{int(merged['n'].sum()):,} of {marks.height:,} {what}, each shorter than {about(bin_ns)}, "
        f"are drawn as {merged.height:,} merged marks"
    )
    return [(kept, note)]


def _packed(frames: list[pl.DataFrame], labels: Labels) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """All marks by lane and start, as one block; where each lane begins; where each column lies."""
    names = [*_LANE, "start", "end", "kind", "name", "range", "stage", "outside", "n"]
    marks = pl.concat([f.select(pl.col(names).cast(pl.Int64)) for f in frames]).sort(
        *_LANE, "start", "end", maintain_order=True
    )
    lanes = marks.group_by(*_LANE, maintain_order=True).agg(pl.len().alias("n"))
    first = (lanes["n"].cum_sum() - lanes["n"]).to_list()
    start = marks["start"].to_numpy()
    fresh = np.zeros(len(start), dtype=bool)
    fresh[first] = True
    block = Columns()
    columns = {
        "start": block.add(np.where(fresh, start, np.diff(start, prepend=0))),
        "dur": block.add((marks["end"] - marks["start"]).to_numpy()),
        **{c: block.add(marks[c].to_numpy()) for c in ("kind", "name", "range", "stage", "outside", "n")},
    }
    rows = [
        {
            "rank": rank,
            "group": GROUPS[group],
            "level": level,
            "label": labels.of(rank, group, level),
            "first": at,
            "n": n,
            **({"most": labels.most(level)} if group == COUNTERS else {}),
        }
        for (rank, group, level, n), at in zip(lanes.iter_rows(), first, strict=True)
    ]
    return block.text(), rows, columns


def _scale(scale: Line) -> dict[str, Any]:
    """For the page; own times have more digits than a double holds."""
    return {"own": str(scale.own), "drawn": scale.common, "rate": scale.rate}


def _windows(measured: Result, rank: int, scale: Line) -> list[dict[str, Any]]:
    """The windows of the other figures on this rank, as they are drawn."""
    of_rank = [w for w in measured.window if w["rank"] == rank and w["gpu_start_ns"] is not None]
    return [
        {"start": scale.moment(w["gpu_start_ns"]), "end": scale.moment(w["gpu_end_ns"]), "label": w["label"]}
        for w in of_rank
    ]

"""The interactive timeline: every op of the window on its rank's streams, with the ranges that launched it above.

The page gets columns of numbers, sorted by lane and start (`pack`), and a table of texts. Times are nanoseconds since
the first op on the clock of all ranks; a rank's `scale` brings them back to its own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.errors import CannotAnswer
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
from stepscope.report.scale import drawn, placed, scales
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


def make(asker: Asker) -> Timeline:
    which = {} if asker.window.get("index") == "all" else {"step": True}
    ops = asker.ask("timeline", **which)
    parts = asker.ask("timeline", by="part", **which)
    ranges = asker.ask("timeline", by="range", **which)
    host = asker.ask("timeline", by="host", **which)
    if ops.rows.height == 0:
        raise CannotAnswer("no GPU work in the window", "choose another with --index or --anchor")
    origin = min(int(f["common_start_ns"].min()) for f in (ops.rows, parts.rows))  # type: ignore[arg-type]
    by_rank = scales(parts.rows, origin)
    cut = _cut(host, parts.rows, by_rank, origin)
    measured = asker.ask("window")
    texts = _Texts()
    marks = [
        *_kept(_op_marks(ops.rows, origin, texts), MOST_OPS, (*_LANE, "kind"), "ops"),
        *_kept(_range_marks(ranges.rows, origin, texts), MOST_RANGES, _LANE, "ranges"),
        *_kept(_part_marks(parts.rows, origin), MOST_PARTS, _LANE, "parts"),
        *_kept(_host_marks(cut, origin, texts), MOST_HOST, _LANE, "host ranges and calls"),
    ]
    counters = sampled(asker, which, parts.rows, origin)
    marks += [(counters.marks, "")] if counters.marks.height else []
    said = [note for _, note in marks if note]
    block, lanes, columns = _packed([frame for frame, _ in marks], Labels(asker, cut, counters.labels))
    made = part(
        "timeline",
        TITLE,
        asker.command("timeline", **which),
        ops,
        plain=shlex.join(["stepscope", "timeline", *asker.paths]),
        kinds=KINDS,
        lanes=lanes,
        columns=columns,
        texts=texts.list(),
        ranks=[
            {"rank": rank, "windows": _windows(measured, rank, scale), **_scale(scale)}
            for rank, scale in sorted(by_rank.items())
        ],
        ops=ops.rows.height,
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
        return values.replace_strict(self._ids, return_dtype=pl.Int64)

    def list(self) -> list[list[str]]:
        """`[short, full]`, or one text where they are the same."""
        out = []
        for text in self._ids:
            short = kernel_base(text or "")
            out.append([short] if short == (text or "") else [short, text or ""])
        return out


#: Lanes are in order of rank, then what they hold, then depth of ranges, or stream.
_LANE = ("rank", "group", "level")


def _frame(rows: pl.DataFrame, origin: int, group: int, **columns: Any) -> pl.DataFrame:
    start = rows["common_start_ns"] - origin
    return pl.DataFrame(
        {
            "rank": rows["rank"],
            "group": pl.Series([group], dtype=pl.Int64).new_from_index(0, rows.height),
            "start": start,
            "end": start + rows["dur_ns"],
            **columns,
        }
    )


def _op_marks(rows: pl.DataFrame, origin: int, texts: _Texts) -> pl.DataFrame:
    return _frame(
        rows,
        origin,
        STREAMS,
        level=rows["stream"],
        kind=rows["role"].replace_strict({k: i for i, k in enumerate(MARKS[:3])}, return_dtype=pl.Int64),
        name=texts.ids(rows["name"]),
        range=texts.ids(rows["range"]),
        stage=texts.ids(rows["stage"]),
        outside=(~rows["inside"]).cast(pl.Int64),
        n=pl.Series(np.ones(rows.height, np.int64)),
    )


def _range_marks(rows: pl.DataFrame, origin: int, texts: _Texts) -> pl.DataFrame:
    if rows.height == 0:
        return pl.DataFrame()
    kind, name = _all(rows, MARKS.index("range")), texts.ids(rows["range"])
    return _frame(rows, origin, RANGE_LANES, level=rows["depth"], kind=kind, name=name, **_no(rows))


def _part_marks(rows: pl.DataFrame, origin: int) -> pl.DataFrame:
    number = {part: len(MARKS) + k for k, part in enumerate(PARTS)}
    kind = rows["part"].replace_strict(number, return_dtype=pl.Int64)
    return _frame(rows, origin, PART_LANE, level=_all(rows, 0), kind=kind, name=_all(rows, 0), **_no(rows))


def _host_marks(rows: pl.DataFrame, origin: int, texts: _Texts) -> pl.DataFrame:
    if rows.height == 0:
        return pl.DataFrame()
    call = rows["kind"] == "call"
    deep = pl.when(pl.Series(call)).then(THREAD - 1).otherwise(pl.col("depth").clip(0, THREAD - 2))
    place = (pl.col("tid").rank("dense").over("rank") - 1).cast(pl.Int64)
    level = rows.select((place * THREAD + deep).cast(pl.Int64).alias("level"))["level"]
    kind = pl.select(
        pl.when(pl.Series(call)).then(MARKS.index("call")).otherwise(MARKS.index("range")).cast(pl.Int64).alias("kind")
    )["kind"]
    return _frame(rows, origin, HOST_LANES, level=level, kind=kind, name=texts.ids(rows["name"]), **_no(rows))


def _all(rows: pl.DataFrame, value: int) -> pl.Series:
    return pl.Series(np.full(rows.height, value, np.int64))


def _no(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """What ranges and parts do not have."""
    return {"range": _all(rows, 0), "stage": _all(rows, 0), "outside": _all(rows, 0), "n": _all(rows, 1)}


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
    marks = pl.concat([f.select(names) for f in frames]).sort(*_LANE, "start", "end", maintain_order=True)
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


def _cut(host: Result, parts: pl.DataFrame, by_rank: dict[int, Line], origin: int) -> pl.DataFrame:
    """What the host did in the drawn time: a range around the whole program would make the drawing as long as that."""
    if host.rows.height == 0:
        return host.rows
    ends = [w["cpu_end_ns"] for w in host.window if w["cpu_end_ns"] is not None]
    shown = parts.group_by("rank").agg(pl.col("start_ns").min().alias("lo"), pl.col("end_ns").max().alias("hi"))
    late = pl.max_horizontal("hi", pl.lit(max(ends, default=0), pl.Int64))
    start, end = pl.max_horizontal("start_ns", "lo"), pl.min_horizontal("end_ns", late)
    rows = host.rows.join(shown, on="rank", maintain_order="left").with_columns(
        start.alias("common_start_ns"), (end - start).alias("dur_ns"), start.alias("start_ns"), end.alias("end_ns")
    )
    placed = drawn(rows.filter(pl.col("dur_ns") >= 0), by_rank, "common_start_ns")
    return placed.with_columns(pl.col("common_start_ns") + origin)

"""Two-stage pipelines, chunk by chunk: period, both stages, and what of them ran at the same time (semantics §8).

`stage0` and the emitting are of one process, `stage1` of one process: differences never cross a clock.

Its ranges are `pp:stage0:*`, `pp:stage1:*` and `pp:emit`, with or without `nvtx:` before them; logs read as such
ranges. A chunk is `k=N` in the text, else the number that the text ends with, else the ordinal of that text on its
process.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import numpy as np
import polars as pl
from msgspec import Struct, field

from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.pipelines.schedules import PIPELINE
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import rows

_STAGE = r"^(?:nvtx:)?pp:stage([01])\b"
_EMIT = r"^(?:nvtx:)?pp:(?:stage0:)?(?:[A-Z]_)?emit\b"
#: As a word of its own: `decode k=3`, `C_decode`, `C_decode_7`; not `decoder`.
_DECODE = r"^(?:nvtx:)?pp:stage0:(?:.*[^a-zA-Z])?decode(?:[^a-zA-Z]|$)"
_TOKENS = r"\btokens=(\d+)"

#: One row per range of a stage, or mark of emitting.
ROWS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "k": pl.Int64,
    "stage": pl.Int8,
    "emit": pl.Boolean,
    "decode": pl.Boolean,
    "tokens": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "busy_ns": pl.Int64,
    "on_gpu": pl.Boolean,
}


def names_stages(part: Profile) -> bool:
    """Whether a part of a profile holds ranges of a two-stage pipeline."""
    ranges = part.ranges["name"].to_numpy()
    return len(ranges) > 0 and bool(part.names_with(_STAGE)[ranges].any())


def depths(part: Profile) -> tuple[int | None, int | None]:
    """How deep the queues into the second stage and out of it are, where a mark says so."""
    names = part.names.gather(part.ranges["name"].unique())

    def said(suffix: str) -> int | None:
        depths_named = names.str.extract(rf"^(?:nvtx:)?pp:queue_depth{suffix}=(\d{{1,9}})$", 1).drop_nulls()
        return int(depths_named[0]) if len(depths_named) else None

    both = said("")
    return tuple(own if own is not None else both for own in (said("_in"), said("_out")))  # type: ignore[return-value]


def stage_rows(part: Profile, host_time: bool) -> pl.DataFrame:
    """`ROWS` of every rank of a part: as the GPU worked for them, or as the host did where nothing was launched."""
    frames = [_of_rank(part, data, host_time) for data in ranks_of(part) if data.ranges.height]
    return pl.concat(frames) if frames else pl.DataFrame(schema=ROWS)


def _of_rank(part: Profile, data: RankData, host_time: bool) -> pl.DataFrame:
    names = part.names
    text = names.gather(data.ranges["name"])
    table = data.ranges.select("start_ns", "end_ns", "closed").with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.lit(data.rank, pl.Int64).alias("rank"),
        text.alias("text"),
        text.str.extract(_STAGE, 1).cast(pl.Int8).alias("stage"),
        text.str.contains(_EMIT).alias("emit"),
        text.str.contains(_DECODE).alias("decode"),
        text.str.extract(_TOKENS, 1).cast(pl.Int64, strict=False).alias("tokens"),
    )
    # Of a stage's ranges within each other, the outermost: time counts once.
    kept = np.union1d(*(data.outermost_named(_STAGE.replace("[01]", stage)) for stage in "01"))
    wanted = (pl.col("stage").is_not_null() & pl.col("row").is_in(pl.Series(kept).implode())) | pl.col("emit")
    table = _numbered(table.filter(wanted & pl.col("closed")))
    busy = None if host_time or not part.has("ops") else _gpu_work(part, data, kept)
    return _timed(table, busy).select([pl.col(name).cast(dtype) for name, dtype in ROWS.items()])


def _numbered(table: pl.DataFrame) -> pl.DataFrame:
    """With the chunk that each range is of."""
    plain = pl.col("text").str.replace(r"\s*" + _TOKENS, "")
    number = pl.coalesce(plain.str.extract(r"\bk=(\d{1,18})\b", 1), plain.str.extract(r"[^\d](\d{1,18})$", 1))
    # "pp:stage0" itself ends with a number, which is not a chunk.
    number = pl.when(plain.str.contains(r"pp:stage[01]$")).then(None).otherwise(number).cast(pl.Int64)
    nth = pl.int_range(pl.len()).over(plain).cast(pl.Int64)
    return table.sort("start_ns").with_columns(pl.coalesce(number, nth).alias("k"))


def _gpu_work(part: Profile, data: RankData, rows: I64) -> pl.DataFrame:
    """By range: when the ops launched in it ran, and how long the GPU was busy with them.

    The pipeline's own sends and receives are left out: they last as long as they wait for the other stage.
    """
    wanted = np.zeros(data.ranges.height, dtype=bool)
    wanted[rows] = True
    comm = np.flatnonzero(data.role == COMM)
    piped = (purpose_of(part, data, comm) == PIPELINE).to_numpy() if len(comm) else np.zeros(0, dtype=bool)
    ops = np.setdiff1d(np.arange(len(data.start)), comm[piped])
    of = data.ancestors_until(data.enclosing(ops), wanted)
    ops, of = ops[of != NONE], of[of != NONE]
    table = pl.DataFrame({"row": of, "start": data.start[ops], "end": data.end[ops]}).sort("row", "start")
    before = pl.col("end").cum_max().shift(1).over("row")
    own = pl.col("end") - pl.max_horizontal("start", before)  # what no op before it has covered
    return table.with_columns(own.clip(0).alias("own")).group_by("row").agg(
        pl.col("start").min().alias("gpu_start"), pl.col("end").max().alias("gpu_end"), pl.col("own").sum().alias("gpu")
    )  # fmt: skip


def _timed(table: pl.DataFrame, busy: pl.DataFrame | None) -> pl.DataFrame:
    """Times of the GPU's work where a range launched any, else of the host."""
    host = (pl.col("end_ns") - pl.col("start_ns")).alias("busy_ns")
    if busy is None:
        return table.with_columns(host, pl.lit(False).alias("on_gpu"))
    table = table.with_columns(host).join(busy, on="row", how="left", maintain_order="left")
    launched = pl.col("gpu").is_not_null() & ~pl.col("emit")
    pairs = (("start_ns", "gpu_start"), ("end_ns", "gpu_end"), ("busy_ns", "gpu"))
    return table.with_columns(
        *(pl.when(launched).then(gpu).otherwise(own).alias(own) for own, gpu in pairs), launched.alias("on_gpu")
    )


class Row(TypedDict):
    k: Annotated[int, "chunk"]
    period_ns: Annotated[int | None, "from the emitting of the chunk before it to its own; null without one"]
    stage0_ns: Annotated[int, "time in the first stage: (tA1 − tA0) + (tDecode − tRecv)"]
    stage1_ns: Annotated[int, "time in the second stage: tB1 − tB0"]
    hidden_ns: Annotated[int, "what ran beside something else: max(0, stage0 + stage1 − period)"]
    overlap_score: Annotated[float, "hidden / min(stage0, stage1): 1 is overlapped, 0 serialized"]
    decode_ns: Annotated[int, "of the first stage, decoding what the second has sent back: tDecode − tRecv"]
    mesh_idle_ns: Annotated[int, "the second stage before it, since the chunk before: tB0 − tB1 of k − 1"]
    tokens: Annotated[str, "tokens of the chunk, where they are told"]


class TwoStage(Struct):
    """The chunks, a `Row` each in order of k, and what was noted."""

    chunks: pl.DataFrame
    depth_in: int | None = None
    depth_out: int | None = None
    notes: list[Note] = field(default_factory=list)


def has_two_stages(profile: Profile) -> bool:
    """Whether the profile holds ranges of a two-stage pipeline."""
    return profile.has("ranges") and any(profile.map(names_stages))


def two_stages(profile: Profile, host_time: bool = False) -> TwoStage:
    """The chunks of the profile's two-stage pipeline; `host_time`: by ranges, whatever they launched."""
    parts = profile.map(_part, host_time)
    table = pl.concat([rows for rows, _, _ in parts]).sort("rank", "start_ns")
    depth = [next((d for d in each if d is not None), None) for each in zip(*(p[1:] for p in parts), strict=True)]
    run = TwoStage(pl.DataFrame(), depth_in=depth[0], depth_out=depth[1])
    first = _process(table.filter((pl.col("stage") == 0) | pl.col("emit")), "first stage", run.notes)
    second = _process(table.filter(pl.col("stage") == 1), "second stage", run.notes)
    run.notes += _measured_by(pl.concat([first.filter(~pl.col("emit")), second]), profile)
    run.chunks = _chunks(first, second, run.notes)
    return run


def _part(part: Profile, host_time: bool) -> tuple[pl.DataFrame, int | None, int | None]:
    return stage_rows(part, host_time), *depths(part)


def _process(table: pl.DataFrame, what: str, notes: list[Note]) -> pl.DataFrame:
    """The rows of the one process whose clock counts: the lowest rank that has any."""
    ranks = table["rank"].unique().sort().to_list()
    if len(ranks) > 1:
        notes.append(noted("several-ranks-have-it", number=len(ranks), what=what, first=ranks[0]))
    return table.filter(pl.col("rank") == ranks[0]) if ranks else table


def _measured_by(ranges: pl.DataFrame, profile: Profile) -> list[Note]:
    """Whether stages are the GPU's work or the host's time. A log's times are what the program says they are."""
    launched = int(ranges["on_gpu"].sum())
    if launched:
        quiet = ranges.height - launched
        rest = f"; {quiet} ranges launched nothing and count by host time" if quiet else ""
        return [noted("stages-on-gpu", launched=launched, rest=rest)]
    if all(s.format == "pipeline-log" for s in profile.sources):
        return []
    return [noted("stages-on-host")]


def _chunks(first: pl.DataFrame, second: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    busy = pl.col("busy_ns").sum()
    work = first.filter((pl.col("stage") == 0) & ~pl.col("emit"))
    decode = _busy_where("decode").alias("decode_ns")
    stage0 = work.group_by("k").agg(busy.alias("stage0_ns"), decode, pl.col("end_ns").max().alias("worked"))
    stage1 = second.group_by("k").agg(
        busy.alias("stage1_ns"), pl.col("start_ns").min().alias("begun"), pl.col("end_ns").max().alias("done")
    )
    emitted = first.filter("emit").group_by("k").agg(pl.col("end_ns").max().alias("emit"))
    if emitted.height == 0:
        notes.append(noted("no-emit"))
        emitted = stage0.select("k", pl.col("worked").alias("emit"))
    tokens = pl.concat([first, second]).group_by("k").agg(pl.col("tokens").max())
    table = stage0.join(stage1, on="k", how="full", coalesce=True).join(emitted, on="k", how="full", coalesce=True)
    table = table.join(tokens, on="k", how="left").sort("k")
    before = table.select(pl.col("k") + 1, pl.col("emit").alias("before"), pl.col("done").alias("done_before"))
    table = table.join(before, on="k", how="left", maintain_order="left")
    table = table.with_columns(
        # Out of order, there is no period: the time between is that of neither chunk.
        pl.when(pl.col("emit") >= pl.col("before")).then(pl.col("emit") - pl.col("before")).alias("period_ns"),
        (pl.col("begun") - pl.col("done_before")).clip(0).alias("mesh_idle_ns"),
    )
    table = _scored(table)
    notes += _lacking(table)
    return rows(Row, table)


def _busy_where(flag: str) -> pl.Expr:
    """Sum of what is flagged; null where nothing is."""
    return pl.when(pl.col(flag).any()).then(pl.col("busy_ns").filter(flag).sum())


def _scored(table: pl.DataFrame) -> pl.DataFrame:
    total = pl.col("stage0_ns") + pl.col("stage1_ns")
    least = pl.min_horizontal("stage0_ns", "stage1_ns")
    hidden = pl.max_horizontal(pl.lit(0, pl.Int64), total - pl.col("period_ns"))
    # Either stage missing is unknown, not zero.
    measured = total.is_not_null() & pl.col("period_ns").is_not_null()
    table = table.with_columns(pl.when(measured).then(hidden).alias("hidden_ns"))
    return table.with_columns(pl.when(least > 0).then(pl.col("hidden_ns") / least).alias("overlap_score"))


def _lacking(table: pl.DataFrame) -> list[Note]:
    notes = []
    if lacking := table.filter(pl.col("stage0_ns").is_null() | pl.col("stage1_ns").is_null()).height:
        notes.append(noted("chunks-incomplete", without=lacking, all=table.height))
    gaps = table["period_ns"].null_count() - (1 if table.height else 0)
    if gaps > 0:
        notes.append(noted("chunks-without-period", number=gaps))
    return notes

"""Two-stage pipelines, chunk by chunk: period, both stages, and what of them ran at the same time (semantics §8).

`stage0` and the emitting are of one process, `stage1` of one process: differences never cross a clock.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import polars as pl
from msgspec import Struct, field

from stepscope.analyses.pipeline.stage_ranges import depths, names_stages, stage_rows
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.result import rows


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

"""Two-stage pipelines from ranges `pp:stage0:*`, `pp:stage1:*` and `pp:emit` (semantics §8); logs read as such ranges.

A chunk is `k=N` in the text, else the number that the text ends with, else the ordinal of that text on its process.
`stage0` and the emitting are of one process, `stage1` of one process: differences never cross a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.note import Note
from stepscope.model.profile import Profile
from stepscope.model.result import Col
from stepscope.model.units import about
from stepscope.statistics import STEPS, interval

COLUMNS = (
    Col("k", "chunk"),
    Col("period_ns", "from the emitting of the chunk before it to its own; null without one"),
    Col("stage0_ns", "time in the first stage: (tA1 − tA0) + (tDecode − tRecv)"),
    Col("stage1_ns", "time in the second stage: tB1 − tB0"),
    Col("hidden_ns", "what ran beside something else: max(0, stage0 + stage1 − period)"),
    Col("overlap_score", "hidden / min(stage0, stage1): 1 is overlapped, 0 serialized"),
)
BLOCKS = (
    Col("block", "what was timed"),
    Col("n", "how often"),
    Col("total_ns", "time in it"),
    Col("mean_ns", "per run"),
    Col("share_pct", "share of all blocks' time"),
    Col("synchronized", "the timers waited for the GPU"),
    Col("use", "what the figure is good for"),
)
ATTRIBUTION, TIMING = "attribution only", "host time"

_STAGE = r"^pp:stage([01])\b"
_EMIT = r"^pp:(?:stage0:)?emit\b"
#: Within this share of max (or of the sum) a period is said to be about that.
_ABOUT = 0.10


@dataclass
class TwoStage:
    """The chunks, `COLUMNS` in order of k, and what was noted."""

    chunks: pl.DataFrame
    queue_depth: int | None = None
    notes: list[Note] = field(default_factory=list)


def has_two_stages(profile: Profile) -> bool:
    """Whether the profile holds ranges of a two-stage pipeline."""
    return profile.has("ranges") and any(profile.map(_names_stages))


def _names_stages(part: Profile) -> bool:
    return part.ranges.height > 0 and bool(part.names.str.contains(_STAGE).any())


def two_stages(profile: Profile) -> TwoStage:
    """The chunks of the profile's two-stage pipeline."""
    ranges, names = profile.ranges, profile.names
    text = names.gather(ranges["name"])
    table = ranges.select("rank", "start_ns", "end_ns").with_columns(
        text.alias("text"),
        text.str.extract(_STAGE, 1).cast(pl.Int8).alias("stage"),
        text.str.contains(_EMIT).alias("emit"),
    )
    depth = text.str.extract(r"^pp:queue_depth=(\d+)", 1).drop_nulls().cast(pl.Int64)
    table = table.filter((pl.col("stage").is_not_null() | pl.col("emit")) & ranges["closed"])
    said = pl.coalesce(pl.col("text").str.extract(r"\bk=(\d+)", 1), pl.col("text").str.extract(r"[^\d](\d+)$", 1))
    # "pp:stage0" itself ends with a number, which is no chunk.
    said = pl.when(pl.col("text").str.contains(r"^pp:stage[01]$")).then(None).otherwise(said).cast(pl.Int64)
    table = table.sort("rank", "start_ns").with_columns(
        pl.coalesce(said, pl.int_range(pl.len()).over("rank", "text")).cast(pl.Int64).alias("k")
    )
    run = TwoStage(pl.DataFrame(), int(depth[0]) if len(depth) else None)
    first = _process(table.filter((pl.col("stage") == 0) | pl.col("emit")), "first stage", run.notes)
    second = _process(table.filter(pl.col("stage") == 1), "second stage", run.notes)
    run.chunks = _chunks(first, second, run.notes)
    return run


def _process(table: pl.DataFrame, what: str, notes: list[Note]) -> pl.DataFrame:
    """The rows of the one process whose clock counts: the lowest rank that has any."""
    ranks = table["rank"].unique().sort().to_list()
    if len(ranks) > 1:
        notes.append(Note("several-ranks-have-it", f"{len(ranks)} ranks have the {what}: rank {ranks[0]} counts"))
    return table.filter(pl.col("rank") == ranks[0]) if ranks else table


def _chunks(first: pl.DataFrame, second: pl.DataFrame, notes: list[Note]) -> pl.DataFrame:
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    work = first.filter((pl.col("stage") == 0) & ~pl.col("emit"))
    stage0 = work.group_by("k").agg(length.alias("stage0_ns"), pl.col("end_ns").max().alias("worked"))
    stage1 = second.group_by("k").agg(length.alias("stage1_ns"))
    emitted = first.filter("emit").group_by("k").agg(pl.col("end_ns").max().alias("emit"))
    if emitted.height == 0:
        notes.append(
            Note(
                "no-emit",
                "no emitting is recorded: a chunk counts as emitted when its first stage last ended",
                severity="warning",
                origin="recording",
            )
        )
        emitted = stage0.select("k", pl.col("worked").alias("emit"))
    table = stage0.join(stage1, on="k", how="full", coalesce=True).join(emitted, on="k", how="full", coalesce=True)
    table = table.sort("k")
    before = emitted.select(pl.col("k") + 1, pl.col("emit").alias("before"))
    table = table.join(before, on="k", how="left", maintain_order="left")
    total = pl.col("stage0_ns") + pl.col("stage1_ns")
    table = table.with_columns((pl.col("emit") - pl.col("before")).alias("period_ns"))
    # Either stage missing is unknown, not zero.
    table = table.with_columns(pl.max_horizontal(pl.lit(0, pl.Int64), total - pl.col("period_ns")).alias("hidden_ns"))
    table = table.with_columns(
        pl.when(total.is_not_null() & pl.col("period_ns").is_not_null()).then("hidden_ns").alias("hidden_ns")
    )
    least = pl.min_horizontal("stage0_ns", "stage1_ns")
    table = table.with_columns(pl.when(least > 0).then(pl.col("hidden_ns") / least).alias("overlap_score"))
    lacking = table.filter(pl.col("stage0_ns").is_null() | pl.col("stage1_ns").is_null()).height
    if lacking:
        notes.append(
            Note(
                "chunks-incomplete",
                f"{lacking} of {table.height} chunks lack a stage's times: no score",
                severity="loss",
                origin="recording",
            )
        )
    gaps = int((table["period_ns"].is_null()).sum()) - (1 if table.height else 0)
    if gaps > 0:
        notes.append(
            Note(
                "chunks-without-period",
                f"{gaps} chunks have no period: the chunk before them was not emitted, or not recorded",
                severity="loss",
                origin="recording",
            )
        )
    return table.select([c.name for c in COLUMNS])


def figures(run: TwoStage, warmup: int) -> dict[str, Any]:
    """Quantiles after warm-up, the score of the run, and what the period says."""
    kept = _judged(run, warmup)
    if kept.height == 0:
        raise CannotAnswer(
            f"no chunk has both stages and a period after --warmup {warmup}",
            "log tA0, tA1, tRecv, tDecode, tEmit and tB0, tB1 of consecutive chunks",
        )
    summary: dict[str, Any] = {"chunks": kept.height, "warmup": warmup}
    if run.queue_depth is not None:
        summary["queue_depth"] = run.queue_depth
    for q in (50, 90, 99):
        at: dict[str, Any] = {
            n: _quantile(kept[n], q / 100) for n in ("period_ns", "stage0_ns", "stage1_ns", "hidden_ns")
        }
        summary[f"p{q}"] = {**at, "overlap_score": float(np.quantile(kept["overlap_score"], q / 100))}
    summary["overlap_score"] = summary["p50"]["overlap_score"]
    return summary


def _judged(run: TwoStage, warmup: int) -> pl.DataFrame:
    """Chunks after warm-up that have both stages and a period."""
    return run.chunks.slice(warmup).drop_nulls("overlap_score")


def _quantile(values: pl.Series, q: float) -> int:
    return round(float(np.quantile(values.to_numpy(), q)))


def verdict(summary: dict[str, Any]) -> str:
    """Overlapped or serialized, with the figures that say so."""
    period, a, b = (summary["p50"][f"{n}_ns"] for n in ("period", "stage0", "stage1"))
    longest, both = max(a, b), a + b
    took, least, most = (about(ns, 4) for ns in (period, longest, both))
    text = f"median period {took} against max(stage0, stage1) {least} and stage0 + stage1 {most}"
    if min(a, b) <= _ABOUT * longest:
        return f"one stage hardly counts: {text}"
    if period > (1 + _ABOUT) * both:
        return f"stalled, neither stage is the limit: {text}"
    if abs(period - longest) <= _ABOUT * longest:
        return f"overlapped: {text}"
    if abs(period - both) <= _ABOUT * both:
        return f"serialized: {text}"
    return f"partly overlapped: {text}"


def against(run: TwoStage, other: TwoStage, warmup: int) -> dict[str, Any]:
    """The other run's figures beside this one's, and whether their difference is more than noise."""
    a, b = figures(run, warmup), figures(other, warmup)
    runs = {
        side: {
            **{k: s.get(k) for k in ("queue_depth", "chunks")},
            **{f"{q}_period_ns": s[q]["period_ns"] for q in ("p50", "p90", "p99")},
            "overlap_score": s["overlap_score"],
        }
        for side, s in (("this", a), ("against", b))
    }
    # Chunks of one run each: another run may differ by more.
    periods = [_judged(r, warmup)["period_ns"].cast(pl.Float64).to_numpy() for r in (other, run)]
    noise = interval(periods[0], periods[1], STEPS)
    before = b["p50"]["period_ns"]
    change = a["p50"]["period_ns"] - before
    if noise is None:
        verdict = "not enough to tell: one chunk on each side"
    elif noise[0] <= 0 <= noise[1]:
        verdict = "the period is within the noise of the chunks"
    else:
        verdict = f"the period is {'shorter' if change < 0 else 'longer'} than the other"
    low, high = (None, None) if noise is None else map(round, noise)
    return {
        "runs": runs,
        "change": {
            "period_ns": change,
            "period_pct": 100.0 * change / before if before else None,
            "interval_low_ns": low,
            "interval_high_ns": high,
            "overlap_score": a["overlap_score"] - b["overlap_score"],
            "verdict": verdict,
        },
    }


def blocks(profile: Profile) -> pl.DataFrame:
    """`BLOCKS`: the share of each block, longest first."""
    table = profile.table("timers")
    table = table.with_columns(profile.names.gather(table["name"]).alias("block"))
    shares = table.group_by("block").agg(
        pl.len().cast(pl.Int64).alias("n"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").mean().round().cast(pl.Int64).alias("mean_ns"),
        pl.col("synchronized").any(),
    )
    shares = shares.with_columns(
        (100.0 * pl.col("total_ns") / pl.col("total_ns").sum()).alias("share_pct"),
        pl.when("synchronized").then(pl.lit(ATTRIBUTION)).otherwise(pl.lit(TIMING)).alias("use"),
    )
    return shares.sort(["total_ns", "block"], descending=[True, False]).select([c.name for c in BLOCKS])

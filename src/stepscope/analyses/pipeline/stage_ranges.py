"""The ranges of a two-stage pipeline, and how long each kept the GPU busy (semantics §8).

`pp:stage0:*`, `pp:stage1:*` and `pp:emit`, with or without `nvtx:` before them; logs read as such ranges. A chunk is
`k=N` in the text, else the number that the text ends with, else the ordinal of that text on its process.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.purpose import purpose_of
from stepscope.derive.pipelines.schedules import PIPELINE
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.profile import Profile

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

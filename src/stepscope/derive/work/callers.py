"""What a trace says of who launched each kernel and how it filled the GPU: torch op, module, occupancy. Null where it
does not."""

from __future__ import annotations

import polars as pl

from stepscope.derive.kernel.room import estimated
from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.rank.data import RankData
from stepscope.derive.work.launches import launching
from stepscope.derive.work.modules import by_text, modules
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile


def callers(data: RankData, ops: I64) -> pl.DataFrame:
    """One row per op."""
    return pl.DataFrame(
        [
            _torch_ops(data, ops),
            modules(data, ops),
            _occupancy(data, ops),
            _lines(data, ops),
        ]
    )


def _torch_ops(data: RankData, ops: I64) -> pl.Series:
    """The innermost torch op around each launch."""
    launched = launching(data)
    if not len(launched.torch):
        return pl.repeat(None, len(ops), dtype=pl.String, eager=True).alias("torch_op")
    shortened = by_text(launched.names(ops), lambda t: t.str.replace(r"^.*evaluate_function: ", ""))
    return shortened.alias("torch_op")


def _lines(data: RankData, ops: I64) -> pl.Series:
    """Where the program launched it, of kernels that graphs replay."""
    noted = noted_at_capture(data)
    if noted is None:
        return pl.repeat(None, len(ops), dtype=pl.String, eager=True).alias("line")
    return noted["frame"].gather(ops).alias("line")


def _occupancy(data: RankData, ops: I64) -> pl.Series:
    """As torch.profiler estimates it; other profilers do not."""
    if not any(source.format.startswith("kineto") for source in data.profile.sources):
        return pl.repeat(None, len(ops), dtype=pl.Float64, eager=True).alias("occupancy_pct")
    return estimated(data, ops, data.profile.once(_recorded)[data.rank].gather(ops).alias("occupancy_pct"))


def _recorded(profile: Profile) -> dict[int, pl.Series]:
    return {rank: frame["occupancy_pct"] for rank, frame in profile.by_rank("ops", detail=True)}


def with_callers(table: pl.DataFrame, frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The table with the torch op, module and line that most of each row's time has, and the mean occupancy by time."""
    for column in ("torch_op", "module", "line"):
        table = with_most(table, frame, keys, column)
    mean = (pl.col("occupancy_pct") * pl.col("ns")).sum() / pl.col("ns").sum()
    filled = frame.drop_nulls("occupancy_pct").group_by(keys).agg(mean.alias("occupancy_pct"))
    return table.join(filled, on=keys, how="left", nulls_equal=True, maintain_order="left")


def with_most(table: pl.DataFrame, frame: pl.DataFrame, keys: list[str], column: str) -> pl.DataFrame:
    """The table with the value of a column that most of each row's time (`ns` of `frame`) has; null where none has."""
    best = (
        frame.drop_nulls(column)
        .group_by(*keys, column)
        .agg(pl.col("ns").sum())
        .sort("ns", column, descending=[True, False])
        .unique(keys, keep="first", maintain_order=True)
        .drop("ns")
    )
    return table.join(best, on=keys, how="left", nulls_equal=True, maintain_order="left")

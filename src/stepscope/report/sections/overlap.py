"""Whether communication is hidden, stage by stage; where nothing names stages, purpose by purpose."""

from __future__ import annotations

import polars as pl

from stepscope.derive.rank.data import NO_STAGE
from stepscope.model.result import Result
from stepscope.report.asker import Asker
from stepscope.report.messages.shared import rows_of
from stepscope.report.messages.step import OverlapData, OverlapRow
from stepscope.report.part import Part, part

TITLE = "Is communication hidden?"


def make(asker: Asker) -> Part:
    by = "stage"
    answer = asker.ask("overlap")
    if set(answer.rows["stage"].to_list()) <= {NO_STAGE}:
        by = "purpose"
        answer = asker.ask("overlap", by=by)
    return part(
        "overlap", TITLE, asker.command("overlap", by=by), answer, OverlapData(by=by, rows=_over_ranks(answer, by))
    )


def _over_ranks(answer: Result, by: str) -> list[OverlapRow]:
    """The rows of all ranks as one per stage: sums, and the share that each rank hides."""
    sums = [pl.col(c).sum() for c in ("n", "comm_ns", "exposed_ns", "barrier_ns")]
    hidden = 100.0 * (1 - pl.col("exposed_ns") / pl.col("comm_ns"))
    table = (
        answer.rows.group_by(by, maintain_order=True)
        .agg(*sums, pl.col("rank"), pl.col("overlap_pct").alias("each_pct"))
        .with_columns(pl.when(pl.col("comm_ns") > 0).then(hidden).alias("overlap_pct"))
        .rename({by: "key"})
        .sort(pl.col("key") == NO_STAGE, "key")
    )
    return rows_of(OverlapRow, table)

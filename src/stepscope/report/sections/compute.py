"""What the GPU computes, in groups, and what stands between the model's FLOPs at the peak and the step."""

from __future__ import annotations

import polars as pl

from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.report.asker import Asker
from stepscope.report.messages.shared import rows_of
from stepscope.report.messages.step import ComputeData, LossRow, WorkGroup
from stepscope.report.part import Part, part

TITLE = "What stands between the step and the hardware"
#: Groups that are shown, the largest.
_MOST = 12


def make(asker: Asker) -> Part:
    answer = asker.ask("compute", by="budget")
    groups = _groups(asker.ask("compute"))
    return part(
        "compute",
        TITLE,
        asker.command("compute", by="budget"),
        answer,
        ComputeData(
            rows=_losses(answer),
            ranks=len(answer.summary["total"]),
            groups=groups[:_MOST],
            left_out=max(0, len(groups) - _MOST),
            group_command=asker.command("compute"),
            statement=answer.summary[STATEMENT],
        ),
    )


def _losses(answer: Result) -> list[LossRow]:
    """Rows of all ranks together, in the order of the budget."""
    table = answer.rows.group_by("loss", "what", maintain_order=True).agg(pl.col("total_ns").sum())
    return rows_of(LossRow, table.with_columns(share_pct=100.0 * pl.col("total_ns") / pl.col("total_ns").sum()))


def _groups(answer: Result) -> list[WorkGroup]:
    """Groups of all ranks together, the longest first."""
    figures = ("n", "total_ns", "good_ns", "flops", "moved_bytes")
    table = (
        answer.rows.group_by("part", "phase", maintain_order=True)
        .agg(
            *(pl.col(c).sum() for c in figures),
            pl.col("share_pct").mean(),
            *(pl.col(c).drop_nulls().first() for c in ("precision", "bound", "good_from")),
        )
        .sort("total_ns", "part", "phase", descending=[True, False, False])
    )
    return rows_of(WorkGroup, table)

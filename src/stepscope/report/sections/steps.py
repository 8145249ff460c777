"""All steps of the run as bars by part, with those that are longer than their like marked."""

from __future__ import annotations

import polars as pl

from stepscope.errors import StepscopeError
from stepscope.report.asker import Asker
from stepscope.report.messages.shared import rows_of
from stepscope.report.messages.step import StepRow, StepsData
from stepscope.report.part import Part, part

TITLE = "All steps"
#: Of more steps, every n-th is drawn, and every one that stands out.
MOST = 300
_PARTS = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")


def wanted(asker: Asker) -> bool:
    """Whether there are several steps to show."""
    try:
        rows = asker.ask("run", by="step").rows
    except StepscopeError:
        return False
    return bool(rows["label"].n_unique() > 1) and not rows["compute_ns"].null_count()


def make(asker: Asker) -> Part:
    answer = asker.ask("run", by="step")
    table = (
        answer.rows.group_by("label", maintain_order=True)
        .agg(pl.col("index", "kind", "spike", "cut").first(), pl.col("step_ns", "between_ns", *_PARTS).mean().round(0))
        .with_columns(pl.col("step_ns", "between_ns", *_PARTS).cast(pl.Int64))
    )
    number = pl.int_range(pl.len())
    kept = table.filter(pl.col("spike") | (pl.col("kind") != "usual") | (number % (1 + table.height // MOST) == 0))
    made = part(
        "steps",
        TITLE,
        asker.command("run", by="step"),
        answer,
        StepsData(
            rows=rows_of(StepRow, kept),
            left_out=table.height - kept.height,
            statement=str(asker.ask("run").summary["statement"]),
            look=asker.command("breakdown"),
        ),
    )
    made.windows[:] = ["the whole capture, mean over ranks; what lies between steps is on top"]
    return made

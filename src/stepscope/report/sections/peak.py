"""How much of the GPU's peak the model uses, rank by rank, and the products that have most of its FLOPs."""

from __future__ import annotations

import polars as pl

from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.report.asker import Asker
from stepscope.report.messages.further import PeakData, PeakRow, PeakTerm
from stepscope.report.messages.shared import rows_of
from stepscope.report.part import Part, part

TITLE = "How much of the peak is used"
#: Terms that are shown, the largest.
_MOST = 12


def make(asker: Asker) -> Part:
    answer = asker.ask("mfu")
    terms = _terms(asker.ask("mfu", by="term"))
    return part(
        "peak",
        TITLE,
        asker.command("mfu"),
        answer,
        PeakData(
            rows=rows_of(PeakRow, answer.rows),
            terms=terms[:_MOST],
            left_out=max(0, len(terms) - _MOST),
            term_command=asker.command("mfu", by="term"),
            statement=answer.summary[STATEMENT],
        ),
    )


def _terms(answer: Result) -> list[PeakTerm]:
    """Terms of all ranks together, the largest first."""
    rate = pl.col("peak_tflops")
    reached = 0.1 * pl.col("hardware_flops") / pl.col("gpu_ns") / rate
    table = (
        answer.rows.group_by("phase", "op", "shapes", "precision", "peak_tflops", maintain_order=True)
        .agg(pl.col("n").sum(), pl.col("hardware_flops").sum(), pl.col("gpu_ns").sum())
        .with_columns(
            share_pct=100.0 * pl.col("hardware_flops") / pl.col("hardware_flops").sum(),
            peak_pct=pl.when(pl.col("gpu_ns") > 0).then(reached),
        )
        .sort("hardware_flops", descending=True, maintain_order=True)
    )
    return rows_of(PeakTerm, table)

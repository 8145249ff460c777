"""How far measured kernels are from their roofs: the picture, and those that take longest."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.report.asker import Asker
from stepscope.report.part import Part, part

TITLE = "How near the measured kernels are to their roofs"
#: Kernels beyond these are counted in a line.
_MOST = 16
_SHOWN = (
    *("name", "dur_ns", "bound", "why", "precision", "tflops", "intensity", "dram_pct", "roof", "roof_pct", "access"),
    *("stall", "ops", "matched", "n"),
)


def wanted(sources: Result) -> bool:
    """Whether there is anything to draw: most reports are of a timeline alone, and miss nothing."""
    return any(source.format.startswith("ncu") for source in sources.sources)


def make(asker: Asker) -> Part:
    answer = asker.ask("roofline")
    rows = _kinds(answer.rows)
    return part(
        "roofline",
        TITLE,
        asker.command("roofline"),
        answer,
        rows=rows[:_MOST],
        left_out=max(0, len(rows) - _MOST),
        roofs=answer.summary["roofs"],
        statement=answer.summary[STATEMENT],
    )


def _kinds(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Launches of the same work as one, the longest of them; what takes longest together comes first."""
    work = ["name", "grid", "block", "precision", pl.col("flops").cast(pl.Float64).log10().round(2).alias("size")]
    kinds = rows.with_columns(total=pl.col("dur_ns"), n=pl.lit(1)).sort("dur_ns", descending=True, nulls_last=True)
    table = kinds.group_by(work, maintain_order=True).agg(
        pl.exclude("total", "n", "size", "name", "grid", "block", "precision").first(),
        pl.col("total", "n").sum(),
    )
    table = table.sort("total", descending=True, nulls_last=True, maintain_order=True)
    return table.select(_SHOWN).to_dicts()

"""How far measured kernels are from their roofs: the picture, and those that take longest."""

from __future__ import annotations

from stepscope.model.result import Result
from stepscope.model.statement import STATEMENT
from stepscope.report.asker import Asker
from stepscope.report.messages.further import RooflineData, RooflineKernel
from stepscope.report.messages.shared import rows_of
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
    table = answer.rows.sort("total_ns", descending=True, nulls_last=True, maintain_order=True)
    rows = rows_of(RooflineKernel, table.select(_SHOWN))
    return part(
        "roofline",
        TITLE,
        asker.command("roofline"),
        answer,
        RooflineData(
            rows=rows[:_MOST],
            left_out=max(0, len(rows) - _MOST),
            roofs=answer.summary["roofs"],
            statement=answer.summary[STATEMENT],
        ),
    )

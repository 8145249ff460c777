"""The pipeline as a Gantt chart: chunks of micro-batches, a line per rank, with the bubble beside the ideal one."""

from __future__ import annotations

from typing import cast

import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.report.asker import Asker
from stepscope.report.messages.further import Chunk, PipelineData, PipelineRank, PipelineSummary
from stepscope.report.messages.shared import rows_of
from stepscope.report.part import Part, part
from stepscope.timeline.scale import drawn

TITLE = "Pipeline"
#: Lines of the chart; beyond, one rank of every stage stands for all.
MOST_RANKS = 32
#: What the page calls the kinds of chunks.
KIND_NAMES = {
    "f": "forward",
    "b": "backward",
    "w": "weights",
    "bw": "backward with weights",
    "fb": "forward and backward together",
}


def make(asker: Asker, by_rank: dict[int, Line]) -> Part:
    """`by_rank`: how the ranks' own times are drawn, so that chunks of different hosts line up."""
    answer = asker.ask("pipeline", by="chunk")
    bubbles = asker.ask("pipeline", by="rank")
    ranks = bubbles.rows.sort("stage", "rank", nulls_last=True)
    shown = ranks
    if ranks.height > MOST_RANKS:
        shown = ranks.unique("stage", keep="first", maintain_order=True)
    wanted = answer.rows.filter(pl.col("rank").is_in(shown["rank"].implode()))
    chunks = drawn(wanted, by_rank, "start_ns", "end_ns")
    kept = ("rank", "step", "kind", "mb", "part", "label", "start_ns", "end_ns", "bubble_ns", "before_ns")
    return part(
        "pipeline",
        TITLE,
        asker.command("pipeline", by="chunk"),
        bubbles,
        PipelineData(
            kinds=list(KIND_NAMES.items()),
            chunks=rows_of(Chunk, chunks.select(kept)),
            ranks=rows_of(PipelineRank, shown),
            left_out=ranks.height - shown.height,
            rank_command=asker.command("pipeline", by="rank"),
            summary=cast("PipelineSummary", bubbles.summary),
        ),
    )

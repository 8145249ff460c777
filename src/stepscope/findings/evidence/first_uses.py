"""The first use of a link in the capture: NCCL connects then, which takes long, and never again.

Such a transfer says nothing of a step. It is taken out of what other findings give back, and a note says so.
"""

from __future__ import annotations

import polars as pl

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.meetings import met, sides
from stepscope.findings.thresholds import SHOWN
from stepscope.model.note import Note, noted
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

FIRST_USE = Threshold(
    10.0,
    "times the median of its like",
    "making connections takes 25 to 62 times as long; other first transfers take up to 9.6 times",
    ("h200/payloads/overlapped.sqlite", "decision 0015"),
)


def first_uses(case: Case) -> pl.DataFrame:
    """Meetings of the step that were the first of their communicator and pair, and how much too long they took."""
    nothing = pl.DataFrame(schema={"meeting": pl.Int64, "kind": pl.String, "over_ns": pl.Int64})
    try:
        a, table = met(case), case.once(sides)
    except CannotAnswer:
        return nothing
    first = a.meetings.group_by("communicator", "src", "dst").agg(
        pl.col("meeting").sort_by("seq").first().alias("first")
    )
    rows = table.unique("meeting", maintain_order=True).with_columns(
        pl.col("took_ns").median().over("communicator", "kind", "bytes").cast(pl.Int64).alias("usual_ns")
    )
    slow = rows.filter(pl.col("took_ns") > FIRST_USE.value * pl.col("usual_ns"))
    # Which communicator it was is not recorded everywhere: then the only one of its kind that takes so long is a first.
    alone = (pl.len().over("kind") == 1) & pl.col("bytes").is_null() & pl.lit(case.kind == "capture")
    slow = slow.filter(pl.col("meeting").is_in(first["first"].implode()) | alone)
    slow = slow.with_columns((pl.col("took_ns") - pl.col("usual_ns")).alias("over_ns"))
    return slow.select(nothing.columns) if slow.height else nothing


def remedy(case: Case) -> Change:
    """The step with every first transfer as long as those that follow."""
    return Change(transfer_less_ns=dict(case.once(first_uses).select("meeting", "over_ns").iter_rows()))


def first_use_notes(case: Case) -> list[Note]:
    """What is not counted."""
    table = case.once(first_uses)
    if table.height == 0 or not case.material(int(table["over_ns"].sum()), SHOWN):
        return []
    longest = table.sort("over_ns", descending=True).row(0, named=True)
    return [
        noted(
            "first-uses",
            communications=several(table.height, "communication is", "communications are"),
            duration=about(longest["over_ns"]),
            kind=str(longest["kind"]).replace("_", "-"),
        )
    ]

"""What collectives cost, group by group: waiting and transfer apart."""

from __future__ import annotations

import polars as pl

from stepscope.report.asker import Asker
from stepscope.report.messages.further import CollectivesData, CollectivesRow
from stepscope.report.messages.shared import rows_of
from stepscope.report.part import Part, part

TITLE = "Collectives"
#: Groups beyond these are summed up in a line that says so.
MOST = 12


def make(asker: Asker) -> Part:
    answer = asker.ask("collectives", by="group")
    rows = answer.rows.sort(pl.col("wait_ns") + pl.col("transfer_ns"), descending=True, nulls_last=True)
    return part(
        "collectives",
        TITLE,
        asker.command("collectives", by="group"),
        answer,
        CollectivesData(
            rows=rows_of(CollectivesRow, rows.head(MOST)),
            left_out=max(0, rows.height - MOST),
        ),
    )

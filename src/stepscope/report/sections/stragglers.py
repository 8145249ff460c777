"""Who makes the others wait, and why."""

from __future__ import annotations

from stepscope.report.asker import Asker
from stepscope.report.messages.further import StragglersData, StragglersRow
from stepscope.report.messages.shared import rows_of
from stepscope.report.part import Part, part

TITLE = "Who makes whom wait"
#: Ranks beyond these are counted in a line; those with a cause come first.
MOST = 32


def make(asker: Asker) -> Part:
    answer = asker.ask("stragglers")
    made = part(
        "stragglers",
        TITLE,
        asker.command("stragglers"),
        answer,
        StragglersData(
            rows=rows_of(StragglersRow, answer.rows.head(MOST)),
            left_out=max(0, answer.rows.height - MOST),
        ),
    )
    made.windows.append("the whole capture: blame is traced over all its steps")
    return made

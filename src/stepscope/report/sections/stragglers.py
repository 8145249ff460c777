"""Who makes the others wait, and why."""

from __future__ import annotations

from stepscope.report.asker import Asker
from stepscope.report.part import Part, part

TITLE = "Who makes whom wait"
#: Ranks beyond these are counted in a line; those with a cause come first.
MOST = 32


def make(asker: Asker) -> Part:
    found = asker.ask("stragglers")
    made = part(
        "stragglers",
        TITLE,
        asker.command("stragglers"),
        found,
        rows=found.rows.head(MOST).to_dicts(),
        left_out=max(0, found.rows.height - MOST),
        summary=found.summary,
    )
    made.windows.append("the whole capture: blame is followed over all its steps")
    return made

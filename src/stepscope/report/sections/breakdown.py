"""Where the step went, rank by rank; idle time by its cause.

A step's window is its work on the GPU. Where that is less than half of the time from one step to the next, the answer
to "where did the step go" lies between the steps: then the figure is of the period, and says so.
"""

from __future__ import annotations

from typing import Any

from stepscope.errors import CannotAnswer
from stepscope.model.result import Result
from stepscope.report.asker import Asker
from stepscope.report.part import Part, part

TITLE = "Where the step went"
_BETWEEN = (
    "most of the time lies between the steps' own work: counted from a step's first op to the next one's (--period)"
)


#: What the page calls the causes of idle time, in the order in which it draws them.
CAUSE_NAMES = {
    "host": "host was elsewhere",
    "sync": "host waited",
    "alloc": "allocator",
    "load": "module load",
    "api": "other CUDA call",
    "queue": "queued",
    "tail": "after the last op",
    "unlinked": "launch not recorded",
}


def make(asker: Asker) -> Part:
    answer, options = _chosen(asker)
    causes, cause_command = _causes(asker, options)
    rows = [{**row, "causes": causes.get(row["rank"], {})} for row in answer.rows.to_dicts()]
    made = part(
        "breakdown",
        TITLE,
        asker.command("breakdown", **options),
        answer,
        rows=rows,
        summary=answer.summary,
        causes=list(CAUSE_NAMES.items()),
        cause_command=cause_command,
    )
    if options:
        made.windows.append(_BETWEEN)
    return made


def _chosen(asker: Asker) -> tuple[Result, dict[str, Any]]:
    """The window that was asked for; where none was, and most of the period lies outside it, the period."""
    answer = asker.ask("breakdown")
    if asker.window or not any(w["count"] > 1 for w in answer.window):
        return answer, {}
    whole = asker.ask("breakdown", period=True)
    if (whole.rows["window_ns"].sum() or 0) > 2 * (answer.rows["window_ns"].sum() or 0):  # no GPU work: no rows
        return whole, {"period": True}
    return answer, {}


def _causes(asker: Asker, options: dict[str, Any]) -> tuple[dict[int, dict[str, int]], str | None]:
    """By rank, why the GPU was idle; nothing where the trace does not tell."""
    try:
        answer = asker.ask("idle", by="cause", **options)
    except CannotAnswer:
        return {}, None
    causes: dict[int, dict[str, Any]] = {}
    for row in answer.rows.to_dicts():
        of_rank = causes.setdefault(row["rank"], {})
        of_rank[row["cause"]] = of_rank.get(row["cause"], 0) + row["total_ns"]
    return causes, asker.command("idle", by="cause", **options)

"""Where the step went, rank by rank; idle time by its cause."""

from __future__ import annotations

from typing import Any

from stepscope.errors import CannotAnswer
from stepscope.report.asker import Asker
from stepscope.report.messages.shared import RankSums, rows_of
from stepscope.report.messages.step import BreakdownData, BreakdownRow
from stepscope.report.part import Part, part

TITLE = "Where the step went"

#: What the page calls the causes of idle time, in the order in which it draws them.
CAUSE_NAMES = {
    "host": "host launches late",
    "sync": "host waited",
    "alloc": "allocator",
    "load": "module load",
    "api": "other CUDA call",
    "gil": "host waits for Python's lock",
    "queue": "queued",
    "tail": "after the last op",
    "unlinked": "launch not recorded",
}


def make(asker: Asker) -> Part:
    answer = asker.ask("breakdown")
    causes, cause_command = _causes(asker)
    return part(
        "breakdown",
        TITLE,
        asker.command("breakdown"),
        answer,
        BreakdownData(
            rows=[BreakdownRow(**row, causes=causes.get(row["rank"], {})) for row in rows_of(RankSums, answer.rows)],
            causes=list(CAUSE_NAMES.items()),
            cause_command=cause_command,
        ),
    )


def _causes(asker: Asker) -> tuple[dict[int, dict[str, int]], str | None]:
    """By rank, why the GPU was idle; nothing where the trace does not say."""
    try:
        answer = asker.ask("idle", by="cause")
    except CannotAnswer:
        return {}, None
    causes: dict[int, dict[str, Any]] = {}
    for row in answer.rows.to_dicts():
        of_rank = causes.setdefault(row["rank"], {})
        of_rank[row["cause"]] = of_rank.get(row["cause"], 0) + row["total_ns"]
    return causes, asker.command("idle", by="cause")

"""Where the step went, rank by rank; idle time by its cause."""

from __future__ import annotations

from typing import Any

from stepscope.errors import CannotAnswer
from stepscope.render.report.asking import Asker
from stepscope.render.report.part import Part, part

TITLE = "Where the step went"


def make(asker: Asker) -> Part:
    found = asker.ask("breakdown")
    causes, cause_command = _causes(asker)
    rows = [{**row, "causes": causes.get(row["rank"], {})} for row in found.rows.to_dicts()]
    return part(
        "breakdown",
        TITLE,
        asker.command("breakdown"),
        found,
        rows=rows,
        summary=found.summary,
        cause_command=cause_command,
    )


def _causes(asker: Asker) -> tuple[dict[int, dict[str, int]], str | None]:
    """By rank, why the GPU was idle; nothing where the trace does not tell."""
    try:
        found = asker.ask("idle", by="cause")
    except CannotAnswer:
        return {}, None
    causes: dict[int, dict[str, Any]] = {}
    for row in found.rows.to_dicts():
        mine = causes.setdefault(row["rank"], {})
        mine[row["cause"]] = mine.get(row["cause"], 0) + row["total_ns"]
    return causes, asker.command("idle", by="cause")

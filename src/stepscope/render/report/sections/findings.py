"""What to change first: the findings of `diagnose`, and the sentence that sums them up."""

from __future__ import annotations

import shlex
from typing import Any

from stepscope.render.report.asking import Asker
from stepscope.render.report.part import Part, part

TITLE = "Findings"


def make(asker: Asker) -> Part:
    found = asker.ask("diagnose")
    return part(
        "findings",
        TITLE,
        asker.command("diagnose"),
        found,
        rows=[_finding(row, shlex.join(asker.paths)) for row in found.rows.to_dicts()],
        statement=found.summary.get("statement"),
        step_ns=found.summary.get("step_ns"),
        clean=bool(found.summary.get("clean", not found.rows.height)),
        skipped=found.summary.get("skipped", []),
    )


def _finding(row: dict[str, Any], paths: str) -> dict[str, Any]:
    """A row as it is, with the places it names, and its command for this profile."""
    command = row["command"].replace(" PROFILE", f" {paths}", 1)
    return {**row, "command": command, "where": row.get("where") or []}

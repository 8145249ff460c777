"""What to change first: the findings of `diagnose`, and the sentence that sums them up."""

from __future__ import annotations

from typing import Any

from stepscope.findings.finding import for_profile
from stepscope.model.heading import numbers
from stepscope.model.note import OF_THE_CAPTURE
from stepscope.report.asker import Asker
from stepscope.report.part import Part, part

TITLE = "Findings"


def make(asker: Asker) -> Part:
    answer = for_profile(asker.ask("diagnose"), asker.paths)  # many files, too
    return part(
        "findings",
        TITLE,
        asker.command("diagnose"),
        answer,
        above=[str(note) for note in answer.notes if note.code in OF_THE_CAPTURE],
        rows=[_finding(row, answer.window) for row in answer.rows.to_dicts()],
        statement=answer.summary.get("statement"),
        step_ns=answer.summary.get("step_ns"),
        mean_step_ns=answer.summary.get("mean_step_ns", answer.summary.get("step_ns")),
        shares_of=answer.summary.get("shares_of", "step"),
        clean=bool(answer.summary.get("clean", not answer.rows.height)),
        skipped=answer.summary.get("skipped", []),
    )


def _finding(row: dict[str, Any], windows: list[dict[str, Any]]) -> dict[str, Any]:
    """A row; where it names no place, its ranks' whole step is one."""
    ranks = numbers(row["ranks"] or "")
    steps = [
        {"rank": w["rank"], "start_ns": w["gpu_start_ns"], "end_ns": w["gpu_end_ns"]}
        for w in windows
        if w["rank"] in ranks and w["gpu_start_ns"] is not None
    ]
    return {**row, "where": row["where"] or steps}

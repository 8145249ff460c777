"""What to change first: the findings of `diagnose`, and the sentence that sums them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from stepscope.findings.finding import for_profile
from stepscope.model.heading import numbers
from stepscope.model.note import OF_THE_CAPTURE
from stepscope.model.result import WindowRow
from stepscope.report.asker import Asker
from stepscope.report.messages.step import Finding, Findings, FindingsData
from stepscope.report.part import Part, part
from stepscope.timeline.messages import Place

TITLE = "Findings"


def make(asker: Asker) -> Part:
    answer = for_profile(asker.ask("diagnose"), asker.paths)  # many files, too
    mean = answer.summary.get("mean_step_ns", answer.summary.get("step_ns"))
    return part(
        "findings",
        TITLE,
        asker.command("diagnose"),
        answer,
        FindingsData(
            above=[str(note) for note in answer.notes if note.code in OF_THE_CAPTURE],
            rows=[_finding(row, answer.window) for row in answer.rows.to_dicts()],
            statement=answer.summary.get("statement"),
            step_ns=answer.summary.get("step_ns"),
            mean_step_ns=mean if mean is None or mean > 1 else None,  # 1: nothing follows the start-up
            shares_of=answer.summary.get("shares_of", "step"),
            clean=bool(answer.summary.get("clean", not answer.rows.height)),
            skipped=answer.summary.get("skipped", []),
        ),
    )


def placed_at(part: Part, place: Callable[[dict[str, Any]], Place | None]) -> Findings:
    """The findings as the page gets them: their places are where `place` draws them."""
    rows = [{**row, "where": [p for w in row["where"] if (p := place(w))]} for row in part.data["rows"]]
    return cast("Findings", {**part.shown(), "rows": rows})


def _finding(row: dict[str, Any], windows: list[WindowRow]) -> Finding:
    """A row; where it names no place, its ranks' whole step is one."""
    ranks = numbers(row["ranks"] or "")
    steps = [
        {"rank": w["rank"], "start_ns": w["gpu_start_ns"], "end_ns": w["gpu_end_ns"]}
        for w in windows
        if w["rank"] in ranks and w["gpu_start_ns"] is not None
    ]
    return cast("Finding", {**row, "where": row["where"] or steps})  # as `diagnose` has it, by its contract

"""The two stages of a pipeline take turns, though each could work on an item of its own.

Where one works while the other waits, an item takes as long as both stages together (`pipeline`: serialized). With
enough items under way the shorter stage runs beside the longer. What of it does not run so could be saved, for every
item of the step but the first, which the stages must see one after the other.
"""

from __future__ import annotations

from stepscope.analyses.pipeline import pipeline
from stepscope.analyses.pipeline.two_stages import has_two_stages
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.findings.thresholds import SHOWN
from stepscope.model.units import about

ID = "serialized-stages"


def detect(case: Case) -> list[Finding]:
    if not has_two_stages(case.profile):
        return []
    summary = case.ask(pipeline, by="k").summary
    period, first, second, hidden = (summary["p50"][f"{name}_ns"] for name in ("period", "stage0", "stage1", "hidden"))
    items = round(case.step_ns / max(period, 1))
    alone = min(first, second) - hidden
    saved = max(items - 1, 0) * max(alone, 0)
    if not case.material(saved, SHOWN):
        return []
    depth = summary.get("queue_depth")
    return [
        Finding(
            ID,
            title("serialized-stages"),
            saved,
            "certain" if depth == 1 else "likely",
            f"an item takes {about(period)}: stage 0 works for {about(first)} of it, stage 1 for {about(second)}, and "
            f"of the shorter {about(alone)} run beside nothing (medians); {items} items in the step"
            + (f", queue depth {depth}" if depth is not None else ""),
            advice("serialized-stages"),
            ("pipeline", "--by k"),
            figures=(period,),
        )
    ]

"""The pipeline's bubble in the step, as `pipeline` has it."""

from __future__ import annotations

import numpy as np

from stepscope.analyses.pipeline import pipeline
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.model.labels import setups
from stepscope.model.result import Result


def bubble(case: Case) -> Result | None:
    """What `pipeline` says of the step; None where there is no pipeline."""
    labels = setups(case.profile.ranks)
    if not any(s.size("pp") > 1 for s in labels.values()):
        return None
    try:
        return case.ask(pipeline, by="rank")
    except CannotAnswer:
        return None


def bubble_ns(case: Case) -> int:
    """The bubble of a rank, on average, which `pipeline-bubble` judges; 0 where there is no pipeline."""
    try:
        answer = case.once(bubble)
    except CannotAnswer:
        return 0
    if answer is None or answer.rows.height == 0:
        return 0
    mean = int(np.mean(answer.rows["bubble_ns"].to_numpy()))
    ideal = answer.summary.get("ideal_pct")
    # A capture that holds more than steps (its set-up, say) idles for more than any schedule does.
    return mean if ideal is None else min(mean, int(2 * ideal / 100 * case.step_ns))

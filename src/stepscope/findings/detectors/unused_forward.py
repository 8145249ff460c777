"""A forward pass that nothing is trained by: a second one, for metrics, whose results the first has too.

What it could give back is the step replayed without the kernels of that pass and their launches
(`evidence/unused_forward.py`). A trace does not say what the results are for: a teacher or a reference model of the
same size is needed, so that the cause is only possible.
"""

from __future__ import annotations

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import wastes
from stepscope.findings.evidence.wasted import Told, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "unused-forward"


def remedy(case: Case) -> Change:
    """One forward pass for each backward pass."""
    return change(case, wastes(case, ID))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said, cause="possible")


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("unused-forward", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        "the step begins its forward pass again, with the same kernels and grids, and has too few products in its "
        f"backward pass to train by both; the kernels of one take {about(lost.took_ns)} on rank {lost.rank}, "
        f"{lost.most}",
        advice("unused-forward"),
    )

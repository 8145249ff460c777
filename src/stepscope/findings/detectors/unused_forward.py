"""A forward pass that nothing is trained by: a second one, for metrics, whose results the first has too.

What it could save is the step replayed without the kernels of that pass and their launches
(`evidence/unused_forward.py`). A trace does not say what the results are for: a teacher or a reference model of the
same size is needed, so that the cause is only possible.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "unused-forward"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("unused-forward", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        "the forward pass runs twice, with the same kernels and grids, but the backward "
        f"pass has too few matmuls for both; the kernels of one take {about(lost.took_ns)} on rank {lost.rank}, "
        f"{lost.most}",
        advice("unused-forward"),
    )


remedy, detect = claimed(ID, _worded, cause="possible")

"""Gradients of gathered rows: sorts of the index, and dense gradients of tables of which few rows were used.

What it could save is the step replayed without those sorts, without filling such gradients, and without the part
of the optimizer's step that passes over them (`evidence/indexing.py`).
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-indexing"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-indexing", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"sorting indices, zeroing whole tables and the optimizer's pass over them take {about(lost.took_ns)} of "
        f"the step on rank {lost.rank}, {lost.most}; {about(lost.good_ns)} of that would remain",
        advice("slow-indexing"),
    )


remedy, detect = claimed(ID, _worded)

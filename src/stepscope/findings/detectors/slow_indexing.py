"""Gradients of gathered rows: sorts of the index, and dense gradients of tables of which few rows were used.

What it could give back is the step replayed without those sorts, without filling such gradients, and without the part
of the optimizer's step that passes over them (`evidence/indexing.py`).
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

ID = "slow-indexing"


def remedy(case: Case) -> Change:
    """No sorts, and gradients of the rows that were used."""
    return change(case, wastes(case, ID))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-indexing", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"sorts of indices, zeros for whole tables and the optimizer's pass over them take {about(lost.took_ns)} of "
        f"the step on rank {lost.rank}, {lost.most}; {about(lost.good_ns)} of that would be left",
        advice("slow-indexing"),
    )

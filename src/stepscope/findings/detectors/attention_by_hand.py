"""Attention written out: products, mask and softmax as kernels of their own, each reading and writing all scores.

What it could give back is the step replayed with each of them at the time of fused attention of that size
(`evidence/attention.py`). The scores are as many as queries times keys: memory grows with the square of the length,
too.
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

ID = "attention-by-hand"


def remedy(case: Case) -> Change:
    """Fused attention."""
    return change(case, wastes(case, ID))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("attention-by-hand", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"products, masks and softmax between them take {about(lost.took_ns)} of the step on rank {lost.rank}, "
        f"{lost.most}. Fused attention, which never writes the scores, takes about {about(lost.good_ns)} for as much, "
        "at the rate that torch's kernels reach",
        advice("attention-by-hand"),
    )

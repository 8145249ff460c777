"""Chains of elementwise kernels and reductions: norms, activations, rotations of positions written out.

What it could save is the step replayed with each chain as one kernel that reads its inputs and writes its outputs
once, as fast as the chain's own kernels move bytes (`evidence/chains.py`).
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "unfused-kernels"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "unfused-kernels",
            kernels=several(lost.kernels, "elementwise kernel runs", "elementwise kernels run"),
            rank=lost.rank,
        ),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; each reads and writes the "
        "whole tensor. As one kernel per chain, at the bandwidth that they reach, they would take "
        f"{about(lost.good_ns)}",
        advice("unfused-kernels"),
    )


remedy, detect = claimed(ID, _worded)

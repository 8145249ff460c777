"""Casts that return to where they began, clones, and gradients that are set to zero: bytes that nobody needs.

What it could save is the step replayed without them (`evidence/copies.py`). The one cast that autocast makes
before a product is not counted, nor a copy into another layout.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "casts-and-copies"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "casts-and-copies",
            kernels=several(lost.kernels, "cast or copy is", "casts and copies are"),
            rank=lost.rank,
        ),
        f"casts that return to the original type, copies of whole tensors and zero fills take "
        f"{about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}",
        advice("casts-and-copies"),
    )


remedy, detect = claimed(ID, _worded)

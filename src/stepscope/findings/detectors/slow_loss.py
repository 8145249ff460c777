"""A loss over a large vocabulary that moves the logits more often than `F.cross_entropy` does.

What it could save is the step replayed with the loss as that call makes it (`evidence/loss.py`): no copies of the
logits, no softmax or label smoothing written out. A loss in chunks, fused with the last product, needs less again.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-loss"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title("slow-loss", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"apart from log-softmax and casts, they take {about(lost.took_ns)} of the step on rank {lost.rank}, "
        f"{lost.most}; F.cross_entropy would need about {about(lost.good_ns)} of that",
        advice("slow-loss"),
    )


remedy, detect = claimed(ID, _worded)

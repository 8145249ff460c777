"""Attention written out: products, mask and softmax as kernels of their own, each reading and writing all scores.

What it could save is the step replayed with each of them at the time of fused attention of that size
(`evidence/attention.py`). The scores are as many as queries times keys: memory grows with the square of the length,
too.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "attention-by-hand"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    if lost.good_ns:
        took = f"matmuls, masks and softmax between them take {about(lost.took_ns)}"
        fused = f"would take about {about(lost.good_ns)} for the same work, at the rate of torch's kernels"
    else:
        took = f"masks and softmax between its matmuls take {about(lost.took_ns)}"
        fused = "needs none of them; the matmuls count as they are, since the trace does not name a known GPU"
    return (
        title("attention-by-hand", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"{took} of the step on rank {lost.rank}, {lost.most}. Fused attention, which never writes the scores, {fused}",
        advice("attention-by-hand"),
    )


remedy, detect = claimed(ID, _worded)

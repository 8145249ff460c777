"""Products of matrices whose sizes do not fit: a vocabulary of 50257, widths that are not multiples of 8.

Names of their kernels say that loads are not aligned. What it could save is the step replayed with each product at
the rate of one whose sizes fit (`evidence/unaligned.py`).
"""

from __future__ import annotations

from stepscope.derive.flops.measured import work_of
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.capturing import capture_with
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "odd-shapes"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    shaped = work_of(case.data_of(lost.rank)).shaped
    sharper = "" if shaped else f"; shapes would tell which sizes, and their FLOPs: {capture_with('shapes')}"
    return (
        title("odd-shapes", products=several(lost.kernels, "product has", "products have"), rank=lost.rank),
        f"their kernels load unaligned data and take {about(lost.took_ns)} of the step on rank {lost.rank}, "
        f"{lost.most}; matmuls of that size with aligned sizes would take about {about(lost.good_ns)}{sharper}",
        advice("odd-shapes"),
    )


remedy, detect = claimed(ID, _worded)

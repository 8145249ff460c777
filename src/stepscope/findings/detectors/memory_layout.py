"""Tensors that are turned around in memory: NCHW to NHWC and back for convolutions, copies of permuted views.

What it could save is the step replayed without these kernels, and with batch norms as channels_last lets expect
(`evidence/layouts.py`). What a kernel that reads one layout alone needs is not counted.
"""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import claimed
from stepscope.findings.evidence.wasted import Told
from stepscope.findings.texts import advice, title
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "memory-layout"


def _worded(case: Case, lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "memory-layout", kernels=several(lost.kernels, "kernel only changes", "kernels only change"), rank=lost.rank
        ),
        f"they, and batch norms that NCHW slows down, take {about(lost.took_ns)} of the step on "
        f"rank {lost.rank}, {lost.most}; with one layout throughout, "
        + (f"about {about(lost.good_ns)} of it stay" if lost.good_ns else "none of it is needed"),
        advice("memory-layout"),
    )


remedy, detect = claimed(ID, _worded)

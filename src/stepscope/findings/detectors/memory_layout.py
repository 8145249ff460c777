"""Tensors that are turned around in memory: NCHW to NHWC and back for convolutions, copies of permuted views.

What it could give back is the step replayed without these kernels, and with batch norms as channels_last lets expect
(`evidence/layouts.py`). What a kernel that reads one layout alone needs is not counted.
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

ID = "memory-layout"


def remedy(case: Case) -> Change:
    """One layout throughout."""
    return change(case, wastes(case, ID))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("memory-layout", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"kernels that do nothing else, and batch norms that NCHW slows, take {about(lost.took_ns)} of the step on "
        f"rank {lost.rank}, {lost.most}; in one layout throughout "
        + (f"about {about(lost.good_ns)} of it stay" if lost.good_ns else "none of it is needed"),
        advice("memory-layout"),
    )

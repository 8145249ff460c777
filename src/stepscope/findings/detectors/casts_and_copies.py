"""Casts that return to where they began, clones, and gradients that are set to zero: bytes that nobody needs.

What it could give back is the step replayed without them (`evidence/copies.py`). The one cast that autocast makes
before a product is not counted, nor a copy into another layout.
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

ID = "casts-and-copies"


def remedy(case: Case) -> Change:
    """None of them."""
    return change(case, wastes(case, ID))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title(
            "casts-and-copies",
            kernels=several(lost.kernels, "cast or copy changes", "casts and copies change"),
            rank=lost.rank,
        ),
        f"casts that return to the type that they began with, copies of whole tensors and fills with zeros take "
        f"{about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}",
        advice("casts-and-copies"),
    )

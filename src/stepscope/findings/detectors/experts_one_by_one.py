"""Experts run one by one, in a loop: small products that fill a part of the GPU each, with launches and waits between.

What it could save is the step replayed with the kernels of all experts of a layer as one grouped product would
take them (`evidence/experts.py`): side by side on the multiprocessors, launched once, and without the waits between
them for how many tokens each has.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.host.idle_causes import SYNC
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.claims import wastes
from stepscope.findings.evidence.hosts import hosts
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "experts-one-by-one"


def remedy(case: Case) -> Change:
    """Grouped products, and no waits between them."""
    waste_of = wastes(case, ID)
    waits = {r: calls for r, w in waste_of.items() if len(calls := _waits(case, r, w))}
    return change(case, waste_of) & Change(calls_not_waiting=waits)


def _waits(case: Case, rank: int, waste: Waste) -> I64:
    """Waits of the host between launches of one run."""
    host = hosts(case)[rank]
    launch = host.data.launch[np.sort(waste.ops)]
    launch = np.sort(launch[launch != NONE])
    calls = host.of_cause(SYNC)
    if not len(launch) or not len(calls):
        return calls[:0]
    place = np.searchsorted(launch, calls)
    inside = (place > 0) & (place < len(launch))
    before, behind = launch[np.maximum(place - 1, 0)], launch[np.minimum(place, len(launch) - 1)]
    near: I64 = calls[inside & (behind - before <= 2 * len(host.calls) // max(len(launch), 1) + 8)]
    return near


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, wastes(case, ID), _said)


def _said(lost: Told) -> tuple[str, str, str]:
    return (
        title("experts-one-by-one", kernels=several(lost.kernels, "small kernel"), rank=lost.rank),
        f"they take {about(lost.took_ns)} of the step on rank {lost.rank}, {lost.most}; each fills only part "
        f"of the GPU. As one grouped GEMM they would take about {about(lost.good_ns)}",
        advice("experts-one-by-one"),
    )

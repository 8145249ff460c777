"""Ranks that compute longer than ranks that do the same work, for no reason that another finding has."""

from __future__ import annotations

from stepscope.findings.case import Case
from stepscope.findings.evidence.peers import ALIKE, Compared, compared
from stepscope.findings.evidence.tokens import loads

#: A GPU is slow where all but this share of its compute takes longer.
BUT = 0.2


def suspects(case: Case) -> dict[int, Compared]:
    """Ranks with more compute than their peers, for no reason that another finding has."""
    heavy = case.once(loads)
    every = case.once(compared).items()
    found = {r: c for r, c in every if r not in heavy and c.clear and case.material(c.excess_ns)}
    # Kernels of other stages have other shapes: only a rank that is slow in all of them stands out.
    return {r: c for r, c in found.items() if not c.alone or c.ratio_at(BUT) >= ALIKE}


def guilty(case: Case) -> dict[int, Compared]:
    """The stragglers: slow GPUs, and a single rank that has more to do (several are a `compute-imbalance`)."""
    every = case.once(suspects)
    slow = {r: c for r, c in every.items() if c.ratio_at(BUT) >= ALIKE}
    return every if len(every) - len(slow) <= 1 else slow

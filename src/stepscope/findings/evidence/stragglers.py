"""Ranks that compute longer than ranks that do the same work, for no reason that another finding has."""

from __future__ import annotations

from stepscope.derive.peers.compute import Compared
from stepscope.findings.case import Case
from stepscope.findings.evidence.peers import beyond_peers
from stepscope.findings.evidence.tokens import heavy


def suspects(case: Case) -> dict[int, Compared]:
    """Ranks with more compute than their peers, for no reason that another finding has."""
    return {r: c for r, c in case.once(beyond_peers).items() if r not in case.once(heavy)}


def guilty(case: Case) -> dict[int, Compared]:
    """The stragglers: slow GPUs, and a single rank that has more to do (several are a `compute-imbalance`)."""
    longer = case.once(suspects)
    slow = {r: c for r, c in longer.items() if c.slow_gpu}
    return longer if len(longer) - len(slow) <= 1 else slow

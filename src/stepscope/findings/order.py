"""Causes that explain waiting: what is left of communication and bubbles once they are gone is told apart from them."""

from __future__ import annotations

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.detectors import (
    expert_imbalance,
    late_node,
    serialized_communication,
    slow_link,
    straggler,
)
from stepscope.findings.evidence.first_uses import without_first_uses


def fixes(case: Case) -> Change:
    """The step without the causes that have a finding of their own."""
    found = case.once(without_first_uses)
    for detector in (slow_link, late_node, serialized_communication, expert_imbalance, straggler):
        try:
            found = found & case.once(detector.change)
        except CannotAnswer:
            continue
    return found

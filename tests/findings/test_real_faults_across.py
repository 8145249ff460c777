"""Faults across ranks that were planted in real runs (four ranks on one H200): found first, on their ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reference_captures
from stepscope import api
from stepscope.model.ranks import ranks_text

PLANTED = reference_captures.planted()
CASES = (
    ("straggler", "nsys"),
    ("straggler", "torch"),
    ("imbalance", "nsys"),
    ("imbalance", "torch"),
    ("slow-link", "nsys"),
    ("slow-link", "torch"),
    ("late-node", "nsys"),
    ("serialized", "nsys"),
    ("serialized", "torch"),
)


def told(capture: Callable[[str, str], Path], name: str, backend: str) -> Any:
    return api.analyse(api.open(capture(name, backend), cache=False), "diagnose")


@pytest.fixture(scope="module")
def healthy_ns(reference_capture: Callable[[str, str], Path]) -> int:
    return int(told(reference_capture, "none", "nsys").summary["unprofiled_step_ns"])


@pytest.mark.parametrize(
    ("name", "backend"),
    [pytest.param(*case, marks=() if case == ("slow-link", "nsys") else pytest.mark.slow) for case in CASES],
)
@pytest.mark.slow
def test_the_planted_fault_comes_first(
    reference_capture: Callable[[str, str], Path], healthy_ns: int, name: str, backend: str
) -> None:
    result = told(reference_capture, name, backend)
    # By torch, which records no events, what is waited for at once is only a bound, and stands by half of it.
    place = result.rows["id"].to_list().index("serialized-communication") if name == "serialized" else 0
    assert place <= (backend == "torch")
    first = result.rows.row(place, named=True)
    assert first["id"] in PLANTED[name].ids, result.summary["statement"]
    if PLANTED[name].ranks:
        assert first["ranks"] == ranks_text(PLANTED[name].ranks)
    assert first["where"]
    if name == "serialized":  # another shape than the healthy one: nothing to compare its step with
        return
    # Another run, and ranks that share a GPU: its step without the fault is that of the healthy run, about.
    left = result.summary["unprofiled_step_ns"] - first["recoverable_ns"]
    assert abs(left - healthy_ns) < 0.2 * healthy_ns


def test_what_is_waited_for_late_is_not_called_serialized(reference_capture: Callable[[str, str], Path]) -> None:
    """Without records of events, calls tell who was made to wait: here for another op than the one just launched."""
    assert "serialized-communication" not in told(reference_capture, "none", "torch").rows["id"].to_list()

"""Signals in the midst of writing: a few points of those that `make reliability` has hundreds of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reliability"))

import kills


@pytest.mark.slow
def test_signals_at_a_few_moments() -> None:
    """SIGKILL, SIGINT, SIGTERM and SIGHUP, to commands that write files, with workers and without, and to a capture."""
    tally = kills.Tally()
    kills.run(12, tally, ["answer", "capture", "workers"])
    assert sum(tally.runs.values()) >= 12
    assert tally.wrong == {"damaged": [], "left_processes": [], "debris": [], "wrong_exit": []}

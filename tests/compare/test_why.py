"""What a comparison says of why the step changed, on jobs whose fault is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faultcases import scenario
from jobs import written
from stepscope import api


@pytest.fixture(scope="module")
def healthy() -> Iterator[Path]:
    with written(scenario("ddp", None, steps=5)) as (_, folder):
        yield folder


#: The fault; whom the others wait for, and what of that rank changed; the finding that says why.
CASES = (
    ("dataloader:rank=1", "for rank 1, whose idle time (host)", "data-stall"),
    pytest.param(*("straggler:rank=2,factor=1.5", "for rank 2, whose compute", "straggler"), marks=pytest.mark.slow),
    pytest.param(*("slow-python:rank=3", "for rank 3, whose idle time (host)", "late-node"), marks=pytest.mark.slow),
    pytest.param(*("dataloader:", "most of it idle time: host", "data-stall"), marks=pytest.mark.slow),
    pytest.param(
        "slow-link:ranks=0-1,factor=6", "most of it exposed communication", "slow-link", marks=pytest.mark.slow
    ),
)


@pytest.mark.parametrize(("fault", "whom", "finding"), CASES)
def test_the_cause_is_named_and_not_the_waiting(healthy: Path, fault: str, whom: str, finding: str) -> None:
    with written(scenario("ddp", fault, steps=5)) as (_, faulty):
        slower = api.compare(healthy, faulty, cache=False).summary["statement"]
        faster = api.compare(faulty, healthy, cache=False).summary["statement"]
    assert "slower" in slower and f"; {finding} is new: " in slower
    assert "faster" in faster and f"; {finding} is gone: " in faster
    assert whom in slower and whom in faster
    assert "rank" not in whom or "comm_exposed" not in slower


def test_of_twins_nothing_is_said(healthy: Path) -> None:
    with written(scenario("ddp", None, steps=5, seed=2)) as (_, twin):
        statement = api.compare(healthy, twin, cache=False).summary["statement"]
    assert "came" not in statement and "gone" not in statement and "waiting for rank" not in statement

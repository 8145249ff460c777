"""Behind communication that is waited for at once stands a cause: FSDP without prefetching, one bucket."""

from __future__ import annotations

from typing import Any

import pytest

from faultcases import diagnosed, scenario

SMALL: dict[str, Any] = {"dp": 4, "ep": 1, "layers": 4}
#: Another program: more ranks and layers, longer sequences, experts.
OTHER: dict[str, Any] = {"dp": 8, "ep": 1, "layers": 8, "nodes": 4, "seq": 8192}
GATHERED, REDUCED = "parameters are gathered when they are needed", "all gradients are reduced at once"


@pytest.mark.parametrize(
    ("schedule", "fault", "mesh", "title"),
    (
        ("fsdp", "no-prefetch", SMALL, GATHERED),
        ("ddp", "one-bucket", {**SMALL, "layers": 8}, REDUCED),
        pytest.param("fsdp", "no-prefetch", OTHER, GATHERED, marks=pytest.mark.slow),
        pytest.param("ddp", "one-bucket", {"dp": 2, "ep": 2, "layers": 8}, REDUCED, marks=pytest.mark.slow),
    ),
)
def test_the_cause_is_named_first(schedule: str, fault: str, mesh: dict[str, Any], title: str) -> None:
    told = diagnosed(scenario(schedule, fault, **mesh), least=0.0)
    assert told.truth_ns > 0.015 * told.result.summary["step_ns"], f"too weak to test: {told}"
    assert told.first["title"].startswith(title), str(told)
    assert told.first["id"] == "serialized-communication"
    assert told.first["recoverable_ns"] == pytest.approx(told.truth_ns, rel=0.25), str(told)


@pytest.mark.parametrize("schedule", ("fsdp", "ddp"))
def test_twins_that_overlap_are_not_accused(schedule: str) -> None:
    told = diagnosed(scenario(schedule, None, **SMALL), least=0.0)
    assert not [t for t in told.result.rows["title"].to_list() if t.startswith((GATHERED, REDUCED))], str(told)

"""Two faults at once: what mending both gives, beside the same job without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import written
from stepscope import api
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario

SHAPE = {"pp": 1, "dp": 4, "ep": 1, "nodes": 2, "layers": 4, "steps": 3, "seed": 77, "jitter": 0.0}
LATE, ALLOC = "late-node:node=1,delay_us=9000", "alloc:per_layer=8"


def diagnosed(*faults: str, **shape: object) -> Result:
    scenario = Scenario(**{**SHAPE, "schedule": "ddp", "micro_batches": 2, **shape}, faults=faults)  # type: ignore[arg-type]
    with written(scenario, ("nsys",)) as (_, folder):
        return api.open(folder, cache=False).diagnose()


def note(result: Result) -> str:
    return next((str(note) for note in result.notes if note.code == "findings-together"), "")


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param((LATE, ALLOC), id="on some ranks, and on all"),
        pytest.param(("host-syncs:per_layer=8", ALLOC), id="two of the host", marks=pytest.mark.slow),
        pytest.param(
            ("tiny-kernels:split=16", "host-syncs:per_layer=6"), id="the GPU, and the host", marks=pytest.mark.slow
        ),
    ],
)
def test_both_are_mended(faults: tuple[str, ...]) -> None:
    result, healthy = diagnosed(*faults), diagnosed()
    gave = result.summary["step_ns"] - healthy.summary["step_ns"]
    assert result.summary["together_ns"] == pytest.approx(gave, rel=0.01)
    assert "mending findings 1 and 2 together could save" in note(result) and "sum" not in note(result)


@pytest.mark.slow
def test_what_is_counted_twice(shared: Path) -> None:
    """A slow data set and eager code (H200): 212 ms a step; without the one and compiled, 54."""
    result = api.open(shared / "traces/h200/hf/hf1_data.sqlite", cache=False).diagnose()
    gave = 158e6
    assert result.summary["together_ns"] == pytest.approx(gave, rel=0.25)
    assert result.rows["recoverable_ns"].sum() > 1.1 * gave
    assert "less than their sum" in note(result)


def test_one_finding_has_nothing_to_add_up() -> None:
    result = diagnosed(ALLOC)
    assert result.rows.height == 1 and result.summary["together_ns"] is None and not note(result)

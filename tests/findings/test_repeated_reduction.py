"""Gradients that are reduced in every micro-batch are told from buckets of one backward pass."""

from __future__ import annotations

from typing import Any

import pytest

from faultcases import diagnosed, scenario
from stepscope.simulate.job.scenario import Scenario

JOB: dict[str, Any] = {"dp": 4, "ep": 1, "micro_batches": 4}


@pytest.mark.parametrize("slower", [30, 60])
def test_reductions_of_every_micro_batch(slower: int) -> None:
    """Over a link so slow that compute does not hide them."""
    shape = {"pp": 1, "dp": 4, "ep": 1, "layers": 4, "micro_batches": 4, "nodes": 2, "steps": 2, "seed": 5}
    faults = ("reduce-always", f"slow-link:ranks=0-1,factor={slower}")
    told = diagnosed(Scenario(schedule="ddp", faults=faults, **shape), least=0.0)
    (found,) = [r for r in told.result.rows.to_dicts() if r["id"] == "repeated-reduction"]
    assert "reduced 4 times a step" in found["title"]
    assert told.truth_ns > 0.03 * told.result.summary["step_ns"], f"too weak to test: {told}"
    assert found["recoverable_ns"] == pytest.approx(told.truth_ns, rel=0.25), str(told)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_buckets_of_one_pass_and_tensor_parallelism_are_no_rounds(micro_batches: int, tp: int) -> None:
    shape = {"tp": tp, "dp": 4 // tp, "micro_batches": micro_batches, "seq": 512}
    told = diagnosed(scenario("ddp", None, **{**JOB, **shape}), least=0.0)
    assert "repeated-reduction" not in told.result.rows["id"].to_list(), str(told)

"""A healthy job has nothing to find: no finding of 2 % of the step or more, on any schedule, mesh or seed."""

from __future__ import annotations

from typing import Any

import pytest

from faultcases import diagnosed, profile_of
from marks import slow_unless
from stepscope.simulate.job.scenario import Scenario

#: Small jobs of every schedule, with and without each axis of the mesh. Only where a step is long enough to hide what
#: goes between nodes are there two of them: a pipeline of a few micro-batches waits for its first and last transfers.
JOBS: tuple[dict[str, Any], ...] = (
    {"schedule": "dualpipev", "pp": 2, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 6},
    {"schedule": "1f1b", "pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    {"schedule": "1f1b", "pp": 4, "ep": 1, "layers": 4, "micro_batches": 8, "nodes": 2},
    {"schedule": "interleaved", "pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    {"schedule": "zero-bubble", "pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    {"schedule": "fsdp", "pp": 1, "dp": 4, "ep": 1, "layers": 4, "micro_batches": 2, "nodes": 2},
    {"schedule": "fsdp", "pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2},
    {"schedule": "ddp", "pp": 1, "dp": 4, "ep": 1, "layers": 4, "micro_batches": 4, "nodes": 2},
    {"schedule": "ddp", "pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 4},
)
SEEDS = 5


@pytest.mark.parametrize("seed", slow_unless((1).__eq__, range(SEEDS)))
@pytest.mark.parametrize(
    "job", slow_unless(lambda job: "nodes" in job, JOBS), ids=lambda j: "-".join(str(v) for v in j.values())
)
def test_a_healthy_job_gets_a_clean_bill(job: dict[str, Any], seed: int) -> None:
    told = diagnosed(Scenario(**job, steps=1 + seed % 2, seed=100 + seed))
    assert told.result.rows.height == 0, str(told)
    assert told.result.summary["clean"]
    # A pipeline's bubble is not compute, and no fault: the sentence says how much there is.
    assert told.result.summary["statement"].startswith(("Nothing above 2 %", "No single cause above 2 %"))


@pytest.mark.parametrize("seed", slow_unless((1).__eq__, range(SEEDS)))
def test_what_a_healthy_job_exposes_is_all_that_it_is_told(seed: int) -> None:
    """Experts of a small DualPipeV: four stages expose a little each, together 3 % of the step; no more is said."""
    job = Scenario(schedule="dualpipev", pp=2, ep=2, layers=4, micro_batches=6, steps=1 + seed % 2, seed=100 + seed)
    (row,) = diagnosed(job).result.rows.to_dicts()
    assert row["id"] == "exposed-communication" and "the experts' all-to-all" in row["title"]
    with profile_of(job) as profile:
        exposed = profile.breakdown().rows["comm_exposed_ns"]
    assert 0 < row["recoverable_ns"] <= exposed.max() and row["share_pct"] < 4.0

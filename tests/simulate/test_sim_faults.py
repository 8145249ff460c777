"""Faults and options: what is refused, and that each fault does what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stepscope.errors import BadInput
from stepscope.simulate.job.faults import KNOWN, parse
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.truth import step_times, truth

DDP = Scenario(schedule="ddp", pp=1, dp=4, ep=1, nodes=2, micro_batches=2)
MOE = Scenario(ep=2, nodes=2, micro_batches=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "gpipe"}, "gpipe"),
        ({"pp": 0}, "--pp 0"),
        ({"nodes": 3}, "8 ranks do not spread over 3 nodes"),
        ({"micro_batches": 3}, "DualPipeV needs"),
        ({"layers": 3}, "fewer than the 4 stages"),
        ({"schedule": "ddp"}, "no pipeline"),
        ({"schedule": "two-stage", "pp": 4}, "2 stages"),
        ({"schedule": "two-stage", "depth": 0}, "depth"),
        ({"schedule": "interleaved", "micro_batches": 5}, "multiple of pp"),
        ({"seed": -1}, "--seed"),
        ({"jitter": 2.0}, "--jitter"),
        ({"kernels": 1}, "--kernels"),
        ({"scale": 0.0}, "--scale"),
        ({"dp": 1000}, "too many"),
        ({"faults": ("boom",)}, "there are alloc"),
        ({"faults": ("straggler",)}, "rank is missing"),
        ({"faults": ("straggler:rank=8",)}, "no rank 8 among 8"),
        ({"faults": ("straggler:rank=x",)}, "not a number"),
        ({"faults": ("straggler:rank=1,speed=2",)}, "no parameter"),
        ({"faults": ("straggler:rank=1,factor=0.5",)}, "give 1 to 1000"),
        ({"faults": ("straggler:rank=1,factor=nan",)}, "factor=nan"),
        ({"faults": ("late-node:node=1",)}, "no node 1 with --nodes 1"),
        ({"faults": ("straggler:rank=1,factor=1e30",)}, "give 1 to 1000"),
        ({"faults": ("straggler:rank=1,factor=nan",)}, "out of range"),
        ({"faults": ("dataloader:stall_ms=1e15",)}, "out of range"),
        ({"faults": ("clock:node=0,offset_us=1e18",)}, "out of range"),
        ({"faults": ("clock:node=0,drift_ppm=1e9",)}, "out of range"),
        ({"faults": ("alloc:per_layer=100000",)}, "give 1 to 1000"),
        ({"seq": 10**11}, "--seq 100000000000: too large"),
        ({"faults": ("slow-link:node=0",)}, "one node"),
        ({"faults": ("slow-link:",)}, "which link"),
        ({"faults": ("slow-link:ranks=1",)}, "two ranks"),
        ({"faults": ("serialized:how=maybe",)}, "how=maybe"),
        ({"ep": 1, "faults": ("imbalance:rank=0",)}, "no experts"),
    ],
)
def test_bad_options_are_refused_with_a_reason_and_a_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        Scenario(**options)
    assert raised.value.hint
    assert "\n" not in str(raised.value)


def test_every_fault_has_defaults_but_for_where_it_is() -> None:
    of_one_rank = ("straggler", "imbalance", "more-launches", "larger-batch", "slow-python")
    where = {"late-node": "node=0", "clock": "node=0", "spike": "at=3", **dict.fromkeys(of_one_rank, "rank=0")}
    for name in KNOWN:
        assert parse(f"{name}:{where.get(name, '')}").name == name


def cost(healthy: Scenario, *faults: str) -> float:
    """Cost of faults per step, as a share of the healthy step."""
    good, bad = (step_times(engine.run(replace(healthy, faults=f))) for f in ((), faults))
    return float(np.median(np.array(bad) - np.array(good)) / np.median(good))


@pytest.mark.parametrize(
    ("healthy", "fault", "low", "high"),
    [
        (DDP, "straggler:rank=3,factor=1.5", 0.45, 0.52),
        (DDP, "slow-host:factor=30", 0.2, 3.0),
        (DDP, "tiny-kernels:split=32", 0.2, 3.0),
        (DDP, "host-syncs:", 0.03, 0.2),
        (DDP, "alloc:per_layer=4", 0.02, 0.5),
        (DDP, "serialized:", 0.01, 0.2),
        (DDP, "serialized:how=stream", 0.01, 0.2),
        (DDP, "slow-link:node=1,factor=20", 0.1, 2.0),
        (DDP, "slow-link:ranks=0-1,factor=20", 0.1, 2.0),
        (MOE, "imbalance:rank=1,factor=2", 0.1, 1.0),
        (MOE, "serialized:", 0.03, 0.5),
        (MOE, "serialized:how=stream", 0.03, 0.5),
        (MOE, "clock:node=1,offset_us=500,drift_ppm=50", 0.0, 0.0),
    ],
)
def test_faults_cost_what_they_should(healthy: Scenario, fault: str, low: float, high: float) -> None:
    assert low <= cost(healthy, fault) <= high


def test_stalls_cost_their_own_length() -> None:
    step = step_times(engine.run(DDP))[1]
    assert cost(DDP, "dataloader:stall_ms=20") * step == pytest.approx(20e6, rel=0.01)
    assert cost(DDP, "late-node:node=1,delay_us=5000") * step == pytest.approx(5e6, rel=0.02)


def test_faults_of_one_rank_leave_the_others_alone() -> None:
    trace = assemble.trace(engine.run(replace(DDP, faults=("tiny-kernels:rank=2,split=8", "alloc:rank=1"))))
    kernels = np.bincount(trace.ops.rank)
    assert kernels[2] > 6 * kernels[0] == 6 * kernels[3]
    frees = trace.calls.name == trace.names.index("cudaFree")
    assert set(trace.calls.rank[frees].tolist()) == {1}


def test_a_serialized_job_on_the_compute_stream_has_barriers_only() -> None:
    found = truth(engine.run(replace(MOE, faults=("serialized:how=stream",))))
    assert {row["n"] for row in found["overlap"]["rows"]} == {0}
    assert sum(row["barrier_ns"] for row in found["overlap"]["rows"]) > 0


def test_imbalance_shows_in_the_bytes() -> None:
    trace = assemble.trace(engine.run(replace(MOE, faults=("imbalance:rank=1,factor=2",))))
    a2a = trace.ranges.name == trace.names.index("ncclAlltoAll")
    most = [int(trace.ranges.bytes[a2a & (trace.ranges.rank == r)].max()) for r in range(4)]
    assert most[1] == 2 * most[0] == 2 * most[2]


@pytest.mark.parametrize(
    "healthy",
    [
        DDP,
        MOE,
        Scenario(schedule="fsdp", pp=1, dp=4, ep=1, micro_batches=2),
        Scenario(schedule="1f1b", pp=2, dp=2, ep=1, micro_batches=4),
        Scenario(schedule="zero-bubble", pp=2, dp=2, ep=1, micro_batches=4),
        Scenario(schedule="interleaved", pp=2, dp=2, ep=1, micro_batches=4),
    ],
    ids=lambda s: s.schedule,
)
@pytest.mark.parametrize("rank", [0, 3])
def test_the_truth_names_the_planted_straggler(healthy: Scenario, rank: int) -> None:
    found = truth(engine.run(replace(healthy, faults=(f"straggler:rank={rank},factor=1.6",))))
    first, second = found["stragglers"]["rows"][:2]
    assert (first["rank"], first["cause"]) == (rank, "compute")
    assert first["late_ns"] > 2 * second["late_ns"]
    assert found["faults"][0]["ranks"] == [rank]
    assert found["faults"][0]["recoverable_ns"] > 0.2 * found["faults"][0]["step_ns"]

"""Every fault across ranks, at three strengths on three schedules: found first, on its ranks, at what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from faultcases import WITHIN, Told, diagnosed, scenario
from marks import slow_unless
from stepscope.model.ranks import ranks_text
from stepscope.simulate.job.scenario import Scenario

SCHEDULES = ("1f1b", "fsdp", "dualpipev")
#: Links need like ones beside them: four stages on four nodes, or experts' groups within a node.
LINKS: dict[str, tuple[str, dict[str, Any]]] = {
    "1f1b": ("node=1", {"pp": 4, "nodes": 4}),
    "fsdp": ("ranks=0-1", {"nodes": 1}),
    "dualpipev": ("node=1", {"pp": 4, "layers": 8, "micro_batches": 8, "nodes": 4}),
}


def on_schedules(*strengths: Any) -> list[Any]:
    """Every strength on every schedule, of which the middle one on the cheapest is quick."""
    return slow_unless(lambda strength, schedule: (strength, schedule) == (strengths[1], "fsdp"), strengths, SCHEDULES)


def close(told: Told, finding: str) -> None:
    first = told.first
    assert first.get("id") == finding, str(told)
    assert first["ranks"] == ranks_text(told.ranks), str(told)
    assert told.truth_ns >= 0.03 * told.result.summary["step_ns"], f"too weak to test: {told}"
    assert abs(first["recoverable_ns"] - told.truth_ns) <= WITHIN * told.truth_ns, str(told)
    assert first["where"] and len(first["where"]) <= 10


@pytest.mark.parametrize(("factor", "schedule"), on_schedules(1.1, 1.3, 2.0))
def test_straggler(schedule: str, factor: float) -> None:
    rank = 1 if factor < 2 else 2
    told = diagnosed(scenario(schedule, f"straggler:rank={rank},factor={factor}"))
    close(told, "straggler")
    assert "clocks" in told.first["try_next"]
    assert told.first["stage"] == (None if schedule == "fsdp" else f"pipeline stage {rank // 2}")


@pytest.mark.parametrize(("per_layer", "schedule"), on_schedules(1, 2, 4))
def test_more_launches_are_no_slow_gpu(schedule: str, per_layer: int) -> None:
    told = diagnosed(scenario(schedule, f"more-launches:rank=1,per_layer={per_layer}"))
    close(told, "straggler")
    assert "times as many launches" in told.first["title"] and "the GPU is not slow" in told.first["evidence"]
    assert "clocks" not in told.first["try_next"]


@pytest.mark.parametrize(("factor", "schedule"), on_schedules(1.15, 1.5, 2.0))
def test_a_larger_batch_is_no_slow_gpu(schedule: str, factor: float) -> None:
    """Products of matrices are persistent here: their grid is the same, and each takes longer."""
    told = diagnosed(scenario(schedule, f"larger-batch:rank=2,factor={factor}"))
    close(told, "straggler")
    assert f"launches are {factor:.2f} times as large" in told.first["title"]
    assert "batch" in told.first["try_next"] and "clocks" not in told.first["try_next"]


@pytest.mark.parametrize("rank", slow_unless((2).__eq__, (0, 2)))
def test_python_before_every_layer(rank: int) -> None:
    """All of a forward pass comes before the first reduction: several absences at one place."""
    mesh = {"pp": 1, "dp": 4, "ep": 1, "layers": 6, "micro_batches": 1, "nodes": 1}
    told = diagnosed(Scenario(schedule="ddp", steps=3, seed=23, faults=(f"slow-python:rank={rank},us=2400",), **mesh))
    close(told, "late-node")
    assert "between launches" in told.first["title"]


@pytest.mark.parametrize(("factor", "schedule"), on_schedules(1.3, 2.0, 3.0))
def test_imbalance(schedule: str, factor: float) -> None:
    close(diagnosed(scenario(schedule, f"imbalance:rank=1,factor={factor}")), "expert-imbalance")


@pytest.mark.parametrize(("factor", "schedule"), on_schedules(3, 5, 10))
def test_slow_link(schedule: str, factor: int) -> None:
    where, more = LINKS[schedule]
    close(diagnosed(scenario(schedule, f"slow-link:{where},factor={factor}", **more)), "slow-link")


@pytest.mark.parametrize(("delay_us", "schedule"), on_schedules(7000, 12000, 25000))
def test_late_node(schedule: str, delay_us: int) -> None:
    node = 0 if delay_us == 12000 else 1
    close(diagnosed(scenario(schedule, f"late-node:node={node},delay_us={delay_us}")), "late-node")


@pytest.mark.parametrize(("way", "schedule"), on_schedules(("wait", 4096), ("stream", 4096), ("wait", 8192)))
def test_serialized(way: tuple[str, int], schedule: str) -> None:
    how, seq = way
    close(diagnosed(scenario(schedule, f"serialized:how={how}", seq=seq)), "serialized-communication")


@pytest.mark.slow
def test_one_rank_that_serializes_is_named_alone() -> None:
    """Every rank reduces its gradients at once; on one, all-to-alls are waited for at once, too."""
    shape: dict[str, Any] = {"pp": 2, "ep": 4, "micro_batches": 8, "seq": 8192}
    close(diagnosed(scenario("dualpipev", "serialized:rank=6,how=wait", **shape)), "serialized-communication")


@pytest.mark.slow
def test_a_wrong_clock_is_no_finding() -> None:
    told, healthy = (diagnosed(scenario("1f1b", f)) for f in ("clock:node=1,offset_us=5000,drift_ppm=20", None))
    assert [r["id"] for r in told.result.rows.to_dicts()] == [r["id"] for r in healthy.result.rows.to_dicts()]
    assert any("clocks of 2 files aligned" in note for note in told.result.notes)

"""Promises are of the step without its profiler, where steps were timed before it recorded.

The profiler of these jobs is a host that is slower at everything it does between calls, on all ranks. The same job
without it, with the fault and without, is simulated with the same seed: what taking the fault away gives there is the
truth.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import polars as pl
import pytest

from jobs import written
from promises import new
from promises.simulated import step_times
from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import execute as engine

SHAPE = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 2, "nodes": 1, "layers": 6, "micro_batches": 2}
#: The host under the profiler: so many times as slow.
PROFILER = "slow-host:factor=2"


def middle(scenario: Scenario) -> float:
    """The step of a job, as simulated."""
    return statistics.median(step_times(engine.run(scenario)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("host-syncs:per_layer=8", "host-sync"),
        ("tiny-kernels:split=64", "tiny-kernels"),
        ("dataloader:stall_ms=9", "data-stall"),
    ],
)
def test_what_the_profiler_costs_is_not_promised(fault: str, finding: str, tmp_path: Path) -> None:
    def job(*faults: str) -> Scenario:
        return Scenario(steps=4, seed=5, faults=faults, **SHAPE)

    plain = middle(job(fault))
    truth = plain - middle(job())
    with written(job(fault, PROFILER), ("nsys",)) as (_, folder):
        blind = promised(folder, finding)
        manifest = {
            "schema": "stepscope-capture/1",
            "scenario": {"backend": "nsys", "ranks": 2, "steps": 4},
            "captured": {"unprofiled_step_ns": [round(plain)]},
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        told = promised(folder, finding)
    assert told == pytest.approx(truth, rel=0.1)
    assert abs(told - truth) <= abs(blind - truth)


@pytest.mark.parametrize("fault", [pytest.param("none", marks=pytest.mark.slow), "frozen-first"])
def test_a_step_timed_with_an_empty_queue_is_longer_than_those_that_run_into_each_other(
    fault: str, tmp_path: Path
) -> None:
    """Its host runs ahead where no profiler slows it: then neither launches nor idle time are worth a word."""
    folder = new.unpacked("lightning_cnn", fault, "torch", tmp_path)
    result = api.analyse(api.open(folder, cache=False), "diagnose", least=0.0)
    host = result.rows.filter(result.rows["id"].is_in(["launch-bound", "unexplained"]))
    assert (host["recoverable_ns"] < 0.02 * result.summary["unprofiled_step_ns"]).all(), host.to_dicts()


def promised(folder: Path, finding: str) -> int:
    rows = api.analyse(api.open(folder, cache=False), "diagnose").rows.to_dicts()
    return next((row["recoverable_ns"] for row in rows if row["id"] == finding), 0)


@pytest.mark.slow
def test_a_host_that_runs_ahead_times_no_steps(tmp_path: Path) -> None:
    """The GPU computes for 12.9 ms of each step, whatever its host took for one when nobody recorded: 8 ms."""
    profile = api.open(new.unpacked("gan", "penalty-every-4", "torch", tmp_path), cache=False)
    answer = profile.diagnose()
    assert not [note for note in answer.notes if note.code == "profiler-distortion"]


@pytest.mark.slow
def test_a_profiler_slows_longer_steps_as_it_does_usual_ones(tmp_path: Path) -> None:
    """A rollout of 820 launches, which torch.profiler makes 1.5 times as long each."""
    profile = api.open(new.unpacked("lightning_policy", "rollout-every-4", "torch", tmp_path), cache=False)
    (kinds,) = profile.diagnose().rows.filter(pl.col("id") == "step-kinds").to_dicts()
    assert "without the profiler, under which it takes 1.4 times as long" in kinds["evidence"]
    assert kinds["recoverable_ns"] < 6_000_000  # 7.8 ms with it

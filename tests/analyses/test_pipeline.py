"""Bubbles, phases and chunks of micro-batch pipelines: simulated jobs of every schedule equal to their truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marks import slow_unless
from stepscope import api
from stepscope.analyses.pipeline.inference import infer, pieces
from stepscope.derive.pipelines.schedules import Shape, ideal
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.label_rules import default
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

MESHES: dict[str, dict[str, int]] = {
    "dualpipev": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    "1f1b": {"pp": 4, "ep": 1, "layers": 4, "micro_batches": 8},
    "interleaved": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 4},
    "zero-bubble": {"pp": 2, "ep": 2, "layers": 2, "micro_batches": 4},
}
FAULTS = (None, "straggler:rank=1", "serialized:how=stream", "host-syncs")


#: Every fault on one schedule, and every schedule without a fault, are quick.
JOBS = slow_unless(lambda p: p[1] is None or p[0] == "zero-bubble", [(s, f) for s in MESHES for f in FAULTS])


@pytest.fixture(scope="module", params=JOBS, ids=lambda p: f"{p[0]}-{p[1]}")
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    schedule, fault = request.param
    folder = tmp_path_factory.mktemp(schedule)
    faults = () if fault is None else (fault,)
    scenario = Scenario(schedule=schedule, steps=2, seed=5, faults=faults, **MESHES[schedule])
    simulate_to(scenario, folder, ("nsys", "kineto"))
    return schedule, folder


@pytest.mark.parametrize("pattern", slow_unless("*.sqlite".__eq__, ["*.sqlite", "*.json.gz"]))
def test_bubbles_are_the_truth(job, pattern):
    schedule, folder = job
    truth = json.loads((folder / "truth.json").read_text())["pipeline"]["rows"]
    profile = api.open(str(folder / pattern), cache=False)
    result = api.analyse(profile, "pipeline")
    rows = result.rows.to_dicts()
    for row, want in zip(rows, truth, strict=True):
        for name in ("rank", "pid", "step_ns", "bubble_ns", "bubble_pct"):
            assert row[name] == want[name]
        # Nominal stage times are the simulator's; the command has measured ones.
        exact = schedule in ("1f1b", "interleaved")
        assert row["ideal_pct"] == pytest.approx(want["ideal_pct"], rel=1e-12 if exact else 0.12)
    assert result.summary["schedule"] == schedule
    assert result.summary["micro_batches"] == MESHES[schedule]["micro_batches"]
    assert any("from labels" in n for n in result.notes)

    phases = api.analyse(profile, "pipeline", by="phase").rows
    sums = phases.group_by("rank", maintain_order=True).agg(pl.col("phase_ns", "bubble_ns").sum())
    assert sums["phase_ns"].to_list() == result.rows["step_ns"].to_list()
    assert sums["bubble_ns"].to_list() == result.rows["bubble_ns"].to_list()


def test_chunks_and_stages(job):
    schedule, folder = job
    m = MESHES[schedule]["micro_batches"]
    profile = api.open(str(folder / "*.sqlite"), cache=False)
    chunks = api.analyse(profile, "pipeline", by="chunk").rows
    forward = chunks.filter((pl.col("rank") == 0) & pl.col("kind").str.contains("f"))
    virtual = {"dualpipev": 2, "interleaved": 2}.get(schedule, 1)
    steps = forward["step"].n_unique()
    assert forward.height == m * virtual * steps and steps == (2 if schedule == "dualpipev" else 1)
    assert set(forward["mb"].to_list()) == set(range(m)) and set(forward["part"].to_list()) == set(range(virtual))
    assert (chunks["compute_ns"] <= chunks["end_ns"] - chunks["start_ns"]).all()
    stages = api.analyse(profile, "pipeline", by="stage").rows
    assert set(stages["stage"].to_list()) == set(range(MESHES[schedule]["pp"]))
    assert stages["n"].sum() == chunks.height


def test_the_slow_stage_is_named(tmp_path):
    faults = ("straggler:rank=2,factor=1.5",)
    simulate_to(Scenario(schedule="1f1b", steps=2, seed=5, faults=faults, **MESHES["1f1b"]), tmp_path, ("nsys",))
    result = api.analyse(api.open(str(tmp_path / "*.sqlite"), cache=False), "pipeline", by="stage")
    assert result.summary["slowest"].startswith("stage 2:")
    worst = result.rows.sort("over_pct", descending=True).row(0, named=True)
    assert worst["stage"] == 2 and worst["over_pct"] == pytest.approx(50, abs=5)


def test_what_is_given_by_hand_counts(tmp_path):
    simulate_to(Scenario(schedule="1f1b", steps=2, seed=5, **MESHES["1f1b"]), tmp_path, ("nsys",))
    profile = api.open(str(tmp_path / "*.sqlite"), cache=False)
    given: dict[str, Any] = {"schedule": "gpipe", "micro_batches": 5, "stages": 3}
    result = api.analyse(profile, "pipeline", **given)
    assert result.summary["ideal_pct"] == pytest.approx(100 * 2 / 7)
    assert not any("inferred" in n for n in result.notes)
    with pytest.raises(BadInput):
        api.analyse(profile, "pipeline", gate=0.3)
    with pytest.raises(CannotAnswer):
        api.analyse(profile, "pipeline", by="k")


def test_no_pipeline_cannot_answer(tmp_path):
    simulate_to(Scenario(schedule="ddp", pp=1, dp=2, ep=1, layers=2, micro_batches=2), tmp_path, ("nsys",))
    with pytest.raises(CannotAnswer):
        api.analyse(api.open(str(tmp_path / "*.sqlite"), cache=False), "pipeline")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("forward chunk 3 (phase1)", [("f", 3, 1)]),
        ("forward chunk 12 (phase0) backward chunk 4 (phase1)", [("f", 12, 0), ("b", 4, 1)]),
        ("weight chunk", [("w", None, None)]),
        ("backward mb 7", [("b", 7, None)]),
        ("forward_microbatch 2", [("f", 2, None)]),
        ("Forward 4", [("f", 4, None)]),
        ("PP:1F3", [("f", 3, 1)]),
        ("0W11", [("w", 11, 0)]),
        ("optimizer", []),
        ("forward", []),
    ],
)
def test_labels(text, expected):
    assert [(p.kind, p.mb, p.part) for p in pieces(text, default().micro_batches)] == expected


@pytest.mark.parametrize(
    ("schedule", "virtual", "times", "expected"),
    [
        ("gpipe", 1, {}, 3 / 11),
        ("1f1b", 1, {}, 3 / 11),
        ("interleaved", 2, {}, 3 / 19),
        # 3 · (2 + 2 − 1) over that and 8 · 5
        ("zero-bubble", 1, {"f": 2.0, "b": 2.0, "w": 1.0}, 9 / 49),
        # 3 · (5 + 3 − 3) over that and 16 · 5
        ("dualpipev", 2, {"f": 2.0, "fb": 5.0, "w": 1.0}, 15 / 95),
        ("dualpipev", 2, {"f": 2.0}, None),
    ],
)
def test_ideals_by_hand(schedule, virtual, times, expected):
    share = ideal(Shape(schedule, 4, 8, virtual, ()), times)
    assert share == (None if expected is None else pytest.approx(expected))


def test_real_traces_sum(shared):
    profile = api.open(shared / "traces/h200/moe4/overlapped.sqlite", cache=False)
    ranks = api.analyse(profile, "pipeline").rows
    phases = api.analyse(profile, "pipeline", by="phase").rows
    sums = phases.group_by("rank", maintain_order=True).agg(pl.col("phase_ns", "bubble_ns").sum())
    assert sums["phase_ns"].to_list() == ranks["step_ns"].to_list()
    assert sums["bubble_ns"].to_list() == ranks["bubble_ns"].to_list()


@pytest.mark.parametrize("given", [(0, None), (-1, None), (None, 0)])
def test_shapes_that_cannot_be_are_refused(given: tuple[int | None, int | None]) -> None:
    """-1 micro-batches on three stages gave a bubble of 200 %."""
    with pytest.raises(BadInput, match="give 1 or more"):
        infer(pl.DataFrame(), None, "gpipe", *given)

"""Figures against the simulator's truth, to the nanosecond; sums on every trace there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairs import scenario
from stepscope import api
from stepscope.compare.compare import compare
from stepscope.compare.measuring import Given
from stepscope.compare.side import Side
from stepscope.compare.steps import StepSpec
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.run import simulate_to
from stepscope.simulate.truth.facts import Facts
from stepscope.simulate.truth.onerank import Partition, breakdown_row
from stepscope.simulate.truth.windows import steps

PARTS = ("compute", "comm_exposed", "copy_exposed", "idle")
VIEWS = ("part", "stage", "family", "kernel")

JOBS = {
    "ddp": {"dp": 2},
    "fsdp": {"schedule": "fsdp", "dp": 4, "nodes": 2, "faults": ("clock:node=1,offset_us=300,drift_ppm=20",)},
    "1f1b": {"schedule": "1f1b", "pp": 2, "layers": 2, "micro_batches": 2},
    "interleaved": {"schedule": "interleaved", "pp": 2, "layers": 4, "micro_batches": 4, "faults": ("serialized",)},
}


def measured(path: Path) -> Side:
    profile = api.open(path)
    return Given([profile]).side(StepSpec())


def truth_parts(job: engine.Job) -> np.ndarray:
    """`[rank, step, part]`: every step, from the end of the one before to its own, by the simulator's own records."""
    found = []
    for rank in range(job.scenario.world):
        f = Facts(job, rank)
        rows = [breakdown_row(f, Partition(f, span)) for span in steps(f)]
        found.append([[row[f"{p}_ns"] for p in PARTS] for row in rows])
    return np.array(found)


@pytest.fixture(scope="module", params=JOBS)
def pair(request, tmp_path_factory) -> tuple[Path, Path, engine.Job, engine.Job]:
    folder = tmp_path_factory.mktemp(request.param)
    jobs = []
    for side, more in (("base", {"seed": 1}), ("new", {"seed": 2, "seq": 6000})):
        what = scenario(**{**JOBS[request.param], **more}, steps=6)
        simulate_to(what, folder / side)
        jobs.append(engine.run(what))
    return folder / "base", folder / "new", *jobs


def test_the_step_and_its_parts_are_the_truth_s(pair):
    base, new, *jobs = pair
    result = api.compare(base, new, cache=False)
    want = [truth_parts(job).mean(axis=0)[1:] for job in jobs]  # nothing before the first step was recorded
    for name, parts in zip(("base", "new"), want, strict=True):
        total = parts.sum(axis=1)
        median = np.median(total)
        assert result.summary["step"][f"{name}_ns"] == round(median)
        # The middle half of five steps: the one in the middle, and three quarters of its neighbours.
        order = np.argsort(total, kind="stable")
        weight = np.zeros(5)
        weight[order] = [0, 0.75, 1, 0.75, 0]
        share = weight @ parts / (weight @ total)
        for row, each in zip(result.rows.to_dicts(), share, strict=True):
            assert row[f"{name}_ns"] == pytest.approx(each * median, abs=1.01)
        assert sum(result.rows[f"{name}_ns"]) == round(median)


def check_sums(base: Side, new: Side, top: int) -> None:
    for by in VIEWS:
        result = compare(base, new, by=by, top=top)
        step = result.summary["step"]
        for column in ("base_ns", "new_ns", "diff_ns"):
            assert sum(result.rows[column]) == step[column], by
        assert sum(result.rows["step_pct"]) == pytest.approx(step["change_pct"])


def test_every_view_sums_to_the_step(pair):
    check_sums(measured(pair[0]), measured(pair[1]), top=3)


def test_ranks_average_to_the_step(pair):
    result = api.compare(pair[0], pair[1], by="rank", cache=False)
    split = result.rows.select("compute_diff_ns", "comm_diff_ns", "copy_diff_ns", "idle_diff_ns").sum_horizontal()
    assert split.to_list() == result.rows["diff_ns"].to_list()
    assert result.rows["diff_ns"].mean() == pytest.approx(result.summary["step"]["diff_ns"], abs=1.01)


def test_a_single_step_is_exact(tmp_path):
    job = scenario(3, steps=1, dp=1)
    simulate_to(job, tmp_path)
    rows = api.compare(tmp_path, tmp_path, cache=False).rows
    assert rows["base_ns"].to_list() == truth_parts(engine.run(job))[0, 0].tolist()
    assert rows["diff_ns"].to_list() == [0, 0, 0, 0]


def test_nsys_and_kineto_of_one_job_do_not_differ(tmp_path):
    simulate_to(scenario(5, dp=2, schedule="fsdp"), tmp_path, ("nsys", "kineto"))
    base, new = measured(tmp_path / "node0.sqlite"), measured(str(tmp_path / "*.json.gz"))  # type: ignore[arg-type]
    for by in (*VIEWS, "rank"):
        result = compare(base, new, by=by)
        assert result.summary["verdict"] == "no difference"
        assert result.summary["step"]["diff_ns"] == 0
        assert result.rows["diff_ns"].to_list() == [0] * result.rows.height
        assert result.summary["kernels"] == {"new": 0, "gone": 0, "longer": 0, "shorter": 0}
        assert {"what": "format", "base": "nsys", "new": "kineto"} in result.summary["differs"]
        assert "format changed from nsys to kineto" in result.summary["statement"]


def test_a_stall_between_steps_is_idle_time(tmp_path):
    simulate_to(scenario(1, steps=8), tmp_path / "a")
    simulate_to(scenario(1, steps=8, faults=("dataloader:stall_ms=3",)), tmp_path / "b")
    result = api.compare(tmp_path / "a", tmp_path / "b", cache=False)
    assert result.summary["verdict"] == "slower"
    by_part = dict(zip(result.rows["part"], result.rows["diff_ns"], strict=True))
    assert by_part["idle"] == pytest.approx(3e6, rel=0.05)
    assert "most of it idle time" in result.summary["statement"]


@pytest.mark.slow
def test_chunks_of_one_step_are_compared_pair_by_pair(tmp_path):
    for name, more in {"a": {}, "b": {"faults": ("serialized",)}}.items():
        what = scenario(1, schedule="dualpipev", pp=2, ep=2, layers=4, micro_batches=8, steps=1, scale=0.5, **more)
        simulate_to(what, tmp_path / name)
    assert api.compare(tmp_path / "a", tmp_path / "b", cache=False).summary["verdict"] == "cannot tell"
    base, new = (Given([api.open(tmp_path / side)]).side(StepSpec(unit="chunk")) for side in "ab")
    result = compare(base, new)
    assert result.summary["verdict"] == "slower"
    assert result.summary["statement"].startswith("the chunk is ")
    few = replace(new, runs=[new.runs[0].only(new.runs[0].labels[:4])])
    assert compare(base, few).summary["step"]["base_n"] == 4
    assert compare(base, few).summary["step"]["base_ns"] == round(float(np.median(base.runs[0].step_ns[:4])))


def test_chunks_that_come_again_make_steps(tmp_path):
    what = scenario(1, schedule="dualpipev", pp=1, ep=2, layers=2, micro_batches=4, steps=7)
    simulate_to(what, tmp_path)
    result = api.compare(tmp_path, tmp_path, cache=False)
    assert result.summary["step"]["base_n"] == 6
    from stepscope.simulate.truth import step_times

    true = float(np.median(step_times(engine.run(what))[1:]))
    assert result.summary["step"]["base_ns"] == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize(
    ("base", "new"),
    [
        ("public/h100x2_before.sqlite", "public/h100x2_after.sqlite"),
        ("h200/train/eager.sqlite", "h200/train/slow_dataloader.sqlite"),
        ("h200/moe4mps/overlapped.sqlite", "h200/moe4mps/serialized.sqlite"),
        ("h200/train/eager.sqlite", "h200/train/eager.pt.trace.json.gz"),
    ],
)
def test_real_traces_sum_too(shared, base, new):
    check_sums(measured(shared / "traces" / base), measured(shared / "traces" / new), top=20)


def test_real_traces_are_judged_as_a_person_would(shared):
    traces = shared / "traces"
    slow = api.compare(traces / "h200/train/eager.sqlite", traces / "h200/train/slow_dataloader.sqlite")
    assert slow.summary["verdict"] == "slower"
    assert "most of it idle time" in slow.summary["statement"]
    once = api.compare(traces / "public/h100x2_before.sqlite", traces / "public/h100x2_after.sqlite")
    assert once.summary["verdict"] == "cannot tell"
    assert "one capture per side is not enough" in once.summary["statement"]
    compiled = api.compare(
        traces / "h200/train/eager.pt.trace.json.gz",
        traces / "h200/train/compiled.pt.trace.json.gz",
        by="kernel",
        top=0,
    )
    made = compiled.rows.filter(compiled.rows["verdict"] == "new")["name"].to_list()
    assert any(name.startswith("triton_") for name in made)
    gone = compiled.rows.filter(compiled.rows["verdict"] == "gone")["name"].to_list()
    assert any("elementwise" in name for name in gone)


def test_a_first_step_without_its_input_is_no_sample(shared):
    """Slow data, then healthy: the first step of the capture lacks its batch. The truth is 212 and 101 ms."""
    hf = shared / "traces" / "h200" / "hf"
    result = api.compare(hf / "hf1_data.sqlite", hf / "hf1_healthy.sqlite", cache=False)
    assert result.summary["verdict"] == "faster"
    assert result.summary["step"]["change_pct"] == pytest.approx(-51, abs=2)
    assert any(n.code == "steps-cut" for n in result.notes)

"""The critical path: simulated jobs equal to their truth, segment by segment; real traces sum to the step."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from marks import slow_unless
from stepscope import api
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.result import Result
from stepscope.simulate.job.costs import END_SPREAD
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

MESHES: dict[str, dict[str, int]] = {
    "dualpipev": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    "1f1b": {"pp": 4, "ep": 2, "layers": 4, "micro_batches": 6},
    "interleaved": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 4},
    "zero-bubble": {"pp": 2, "ep": 2, "layers": 2, "micro_batches": 4},
    "fsdp": {"pp": 1, "dp": 2, "ep": 2, "layers": 2, "micro_batches": 2},
    "ddp": {"pp": 1, "dp": 2, "ep": 2, "layers": 2, "micro_batches": 2},
}
FAULTS = (
    (),
    ("straggler:rank=1,factor=1.5",),
    ("slow-host:rank=1,factor=4",),
    ("dataloader:stall_ms=3",),
    ("host-syncs", "alloc"),
    ("serialized:how=stream",),
    ("tiny-kernels",),
    ("imbalance:rank=1",),
)


def simulated(folder: Path, pattern: str = "*.sqlite", **more: Any) -> tuple[api.Profile, dict[str, Any]]:
    formats = ("kineto",) if "json" in pattern else ("nsys",)
    simulate_to(Scenario(**{"steps": 2, "seed": 9, **more}), folder, formats)
    return api.open(str(folder / pattern), cache=False), json.loads((folder / "truth.json").read_text())


def ask(profile: api.Profile, **options: Any) -> Result:
    return api.analyse(profile, "critical-path", **options)


def totals(result: Result, key: str) -> dict[str, int]:
    return {k: row["total_ns"] for k, row in result.summary[key].items()}


def assert_whole(result: Result) -> None:
    """Segments are contiguous, none is empty, and they sum to the step exactly."""
    step, rows = result.summary["step"], result.rows
    assert rows["start_ns"][0] == step["start_ns"] and rows["end_ns"][-1] == step["end_ns"]
    assert rows["start_ns"][1:].to_list() == rows["end_ns"][:-1].to_list()
    assert (rows["dur_ns"] > 0).all() and rows["dur_ns"].sum() == step["step_ns"]
    for key in ("by_kind", "by_rank"):
        assert sum(totals(result, key).values()) == step["step_ns"]
    assert rows["order"].to_list() == list(range(rows.height))


def one_axis(schedule: str, faults: tuple[str, ...]) -> bool:
    """Every fault on one schedule, and every schedule without a fault."""
    return not faults or schedule == "zero-bubble"


def named(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else "+".join(x.split(":")[0] for x in value) or "none"


@pytest.mark.parametrize(("schedule", "faults"), slow_unless(one_axis, MESHES, FAULTS), ids=named)
def test_the_path_is_the_truth(schedule, faults, tmp_path):
    profile, truth = simulated(tmp_path, schedule=schedule, faults=faults, **MESHES[schedule])
    result = ask(profile)
    assert_whole(result)
    want = truth["critical-path"]
    assert result.rows.to_dicts() == want["rows"]
    assert result.summary["step"] == want["summary"]["step"]
    assert totals(result, "by_kind") == want["summary"]["by_kind"]
    assert totals(result, "by_rank") == want["summary"]["by_rank"]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_gradients_wait_for_the_pipeline_s_last_send(schedule, tmp_path):
    """An event that is recorded after a stream was told to wait stands for what was waited for, too."""
    mesh = {**MESHES[schedule], "dp": 2, "ep": 1, "pp": 2}
    profile, truth = simulated(tmp_path, schedule=schedule, faults=("straggler:rank=1",), **mesh)
    assert ask(profile).rows.to_dicts() == truth["critical-path"]["rows"]


def test_a_full_launch_queue_is_followed(tmp_path):
    profile, truth = simulated(tmp_path, schedule="ddp", pp=1, dp=2, ep=1, layers=4, micro_batches=3, scale=6.0)
    result = ask(profile)
    assert result.rows.to_dicts() == truth["critical-path"]["rows"]


@pytest.mark.parametrize("offset", slow_unless((500).__eq__, [0, 500, -400_000]))
def test_clocks_do_not_change_the_answer(offset, tmp_path):
    faults = ("straggler:rank=2", f"clock:node=1,offset_us={offset},drift_ppm={10 if offset else 0}")
    profile, truth = simulated(tmp_path, schedule="1f1b", nodes=2, faults=faults, **MESHES["1f1b"])
    result = ask(profile)
    assert_whole(result)
    want = truth["critical-path"]["summary"]
    assert result.summary["step"]["step_ns"] == pytest.approx(want["step"]["step_ns"], abs=END_SPREAD)
    for by in ("by_kind", "by_rank"):
        for key, ns in want[by].items():
            assert totals(result, by)[str(key)] == pytest.approx(ns, abs=END_SPREAD)
    if not offset:
        assert result.rows.to_dicts() == truth["critical-path"]["rows"]
    else:
        assert any("residual" in n for n in result.notes)


@pytest.mark.slow
def test_kineto_without_events_still_sums(tmp_path):
    profile, truth = simulated(tmp_path, "*.json.gz", schedule="1f1b", **MESHES["1f1b"])
    result = ask(profile)
    assert_whole(result)
    want = truth["critical-path"]["summary"]
    assert result.summary["step"]["step_ns"] == want["step"]["step_ns"]
    assert totals(result, "by_kind")["compute"] == pytest.approx(want["by_kind"]["compute"], rel=0.05)


@pytest.mark.slow
def test_one_rank_of_many_and_totals(tmp_path):
    profile, _ = simulated(tmp_path, schedule="1f1b", **MESHES["1f1b"])
    alone = ask(profile, rank=0)
    assert_whole(alone)
    assert set(alone.rows["rank"].to_list()) == {0}
    step = alone.summary["step"]["step_ns"]
    for by in ("kind", "rank", "range", "name"):
        table = ask(profile, rank=0, by=by).rows
        assert table["total_ns"].sum() == step and table["share_pct"].sum() == pytest.approx(100)
    with pytest.raises(BadInput):
        ask(profile, index="all")


# -- what if -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", MESHES)
def test_a_replay_without_change_is_the_step(schedule, tmp_path):
    profile, _ = simulated(tmp_path, schedule=schedule, **MESHES[schedule])
    found = ask(profile, what_if=("host=1", "host=2", "hide-comm", "even-rank")).summary["what_if"]
    step = found[0]["step_ns"]
    assert found[0]["replay_ns"] == found[0]["bound_ns"] == step
    for row in found[1:]:
        assert 0 < row["bound_ns"] <= step and row["saves_ns"] == step - row["bound_ns"]
    hidden = found[2]
    assert hidden["saves_ns"] > 0


@pytest.mark.parametrize(
    ("more", "question"),
    [
        ({"schedule": "1f1b", **MESHES["1f1b"], "faults": ("straggler:rank=1,factor=1.5",)}, "even-rank"),
        ({"schedule": "ddp", "pp": 1, "dp": 4, "ep": 1, "layers": 4, "faults": ("straggler:rank=2",)}, "even-rank=2"),
        ({"schedule": "ddp", "pp": 1, "dp": 4, "ep": 1, "layers": 4, "faults": ("slow-host:rank=2",)}, "even-rank"),
        ({"schedule": "fsdp", "pp": 1, "dp": 4, "ep": 1, "layers": 4, "faults": ("slow-host:factor=8",)}, "host=8"),
    ],
)
def test_what_if_gives_back_what_the_fault_costs(more, question, tmp_path):
    """The bound lies near the step of the same job without the fault."""
    profile, truth = simulated(tmp_path, **{"micro_batches": 2, "steps": 3, **more})
    row = ask(profile, what_if=(question,)).summary["what_if"][0]
    fault = truth["faults"][0]
    assert row["bound_ns"] == pytest.approx(fault["step_ns"] - fault["recoverable_ns"], rel=0.02)
    rank = fault["params"].get("rank")
    if question == "even-rank":
        assert f"rank {rank} " in row["meaning"]


def test_only_one_stage_hidden(tmp_path):
    profile, _ = simulated(tmp_path, schedule="dualpipev", **MESHES["dualpipev"])
    asked = ("hide-comm", "hide-comm=stage2_f", "hide-comm=nothing")
    every, one, none = ask(profile, what_if=asked).summary["what_if"]
    assert none["saves_ns"] == 0 and 0 < one["saves_ns"] < every["saves_ns"]


@pytest.mark.parametrize("text", ["faster", "host", "host=0", "host=quick", "even-rank=99", "even-rank=x"])
def test_what_if_must_make_sense(text, tmp_path):
    profile, _ = simulated(tmp_path, schedule="ddp", **MESHES["ddp"])
    with pytest.raises(BadInput):
        ask(profile, what_if=(text,))


# -- real traces -------------------------------------------------------------------------------------------------------

REAL = (
    "h200/moe4/overlapped.sqlite",
    "h200/moe4/serialized.sqlite",
    "h200/moe4/*.json.gz",
    "h200/moe4mps/overlapped.sqlite",
    "h200/moe4mps/cut_off.sqlite",
    "h200/payloads/overlapped.sqlite",
    "h200/train/eager.sqlite",
    "h200/train/eager.pt.trace.json.gz",
    "h200/train/slow_dataloader.sqlite",
    "public/dlrm8/*",
    "public/h100x2_before.sqlite",
    "public/h100_qwen.json.gz",
    "public/a100_lm2.7b_nvtx.sqlite",
    "public/a100_cuda_graphs.sqlite",
)


@pytest.mark.parametrize("name", slow_unless(lambda name: name.endswith(".sqlite") and "moe4" not in name, REAL))
def test_real_traces_sum_to_the_step(shared, name):
    result = ask(api.open(str(shared / "traces" / name), cache=False), what_if=("host=2", "hide-comm"))
    assert_whole(result)
    for row in result.summary["what_if"]:
        assert 0 < row["bound_ns"] <= row["replay_ns"]
        assert row["at_most_ns"] == max(row["step_ns"] - row["bound_ns"], 0)
        assert row["replay_ns"] <= row["step_ns"] * 1.001  # a lower bound, but for clocks that disagree
    assert any("lower bound" in n for n in result.notes)


def test_the_step_of_a_trace_with_payloads_is_one_in_both_exports(shared):
    traces = shared / "traces/h200/payloads"
    both = [ask(api.open(traces / n, cache=False)).rows for n in ("overlapped.sqlite", "overlapped_pqtdir")]
    assert both[0].equals(both[1])


def test_without_calls_there_is_no_answer(shared):
    with pytest.raises(CannotAnswer):
        ask(api.open(shared / "traces/public/mi300x_4ranks_merged_nccl.json.gz", cache=False))


def test_rows_are_in_order_of_time(tmp_path):
    profile, _ = simulated(tmp_path, schedule="ddp", **MESHES["ddp"])
    rows = ask(profile).rows.to_dicts()
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))

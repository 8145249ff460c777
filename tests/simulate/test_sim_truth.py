"""The truth: its accounts close, and the commands find the same in the files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stepscope.api as api
from marks import slow_unless
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.run import simulate_to
from stepscope.simulate.truth import truth

JOBS = {
    "dualpipev": Scenario(ep=2, nodes=2, micro_batches=4),
    "dualpipev, every axis": Scenario(dp=2, cp=2, ep=2, tp=2, nodes=2, micro_batches=4, steps=1),
    "1f1b": Scenario(schedule="1f1b", pp=2, ep=2, micro_batches=4),
    "interleaved": Scenario(schedule="interleaved", pp=2, ep=1, micro_batches=4),
    "interleaved, one step": Scenario(schedule="interleaved", pp=2, ep=1, micro_batches=4, steps=1),
    "zero-bubble": Scenario(schedule="zero-bubble", pp=2, ep=1, dp=2, micro_batches=4),
    "fsdp": Scenario(schedule="fsdp", pp=1, dp=2, ep=1, micro_batches=2),
    "ddp": Scenario(schedule="ddp", pp=1, dp=2, ep=1, micro_batches=2),
    "ddp, one step": Scenario(schedule="ddp", pp=1, dp=2, ep=1, micro_batches=2, steps=1),
    "faulty": Scenario(
        schedule="ddp",
        pp=1,
        dp=2,
        ep=1,
        micro_batches=2,
        nodes=2,
        faults=("host-syncs:", "alloc:", "tiny-kernels:rank=1,split=4", "clock:node=1,offset_us=-700,drift_ppm=30"),
    ),
}


@pytest.fixture(scope="module", params=slow_unless("dualpipev, every axis".__ne__, JOBS), ids=list(JOBS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return JOBS[request.param]


@pytest.fixture(scope="module")
def found(scenario: Scenario) -> dict[str, Any]:
    return truth(engine.run(scenario))


def test_the_partition_sums_to_the_window_and_its_gaps_to_its_idle_time(found: dict[str, Any]) -> None:
    windows = {row["rank"]: row for row in found["window"]["rows"]}
    for row in found["breakdown"]["rows"]:
        parts = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
        assert sum(row[p] for p in parts) == row["window_ns"]
        window = windows[row["rank"]]
        if "chunk" not in window["label"]:  # else `window` shows the chunk, and the partition is that of the capture
            assert row["window_ns"] == window["gpu_end_ns"] - window["gpu_start_ns"]
        gaps = [g for g in found["idle"]["rows"] if g["rank"] == row["rank"]]
        causes = [g for g in found["idle"]["by_cause"] if g["rank"] == row["rank"]]
        assert sum(g["gap_ns"] for g in gaps) == sum(g["total_ns"] for g in causes) == row["idle_ns"]
        assert len(gaps) == sum(g["n"] for g in causes)
        assert all(g["gap_ns"] > 0 for g in gaps)


def test_exposure_sums_from_ops_to_stages(found: dict[str, Any]) -> None:
    for row in found["overlap"]["rows"]:
        ops = [o for o in found["exposed"]["rows"] if (o["rank"], o["stage"]) == (row["rank"], row["stage"])]
        free = [o for o in ops if not o["barrier"]]
        assert row["n"] == len(free)
        assert row["comm_ns"] == sum(o["dur_ns"] for o in free)
        assert row["exposed_ns"] == sum(o["exposed_ns"] for o in free)
        assert row["exposed_wall_ns"] <= row["exposed_ns"] <= row["comm_ns"]
        assert row["barrier_ns"] == sum(o["dur_ns"] for o in ops if o["barrier"])


def test_the_critical_path_is_contiguous_and_sums_to_the_step(found: dict[str, Any]) -> None:
    path = found["critical-path"]
    rows, step = path["rows"], path["summary"]["step"]
    assert rows[0]["start_ns"] == step["start_ns"]
    assert rows[-1]["end_ns"] == step["end_ns"]
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))
    for totals in ("by_kind", "by_rank"):
        assert sum(path["summary"][totals].values()) == step["step_ns"]


def test_collectives_are_whole(found: dict[str, Any], scenario: Scenario) -> None:
    rows = found["collectives"]["rows"]
    assert len({(r["group"], r["op"], r["seq"], r["ranks"]) for r in rows}) == len(rows)
    assert all(r["transfer_ns"] > 0 and r["max_wait_ns"] >= 0 for r in rows)
    assert all(r["busbw_gbps"] > 0 for r in rows)
    stragglers = found["stragglers"]["rows"]
    assert sum(r["share_pct"] for r in stragglers) == pytest.approx(100 if any(r["late_ns"] for r in stragglers) else 0)
    assert {r["rank"] for r in stragglers if r["cause"]} == _hit(scenario)


def _hit(scenario: Scenario) -> set[int]:
    """Ranks that a fault of some ranks alone is on."""
    return {f.params["rank"] for f in scenario.planted if f.params.get("rank") is not None}


def test_the_truth_is_json_and_the_same_every_time(scenario: Scenario, found: dict[str, Any]) -> None:
    again = truth(engine.run(scenario))
    assert json.dumps(found, sort_keys=True) == json.dumps(again, sort_keys=True)


#: Command, options, where its rows are in the truth, and columns that the file's format cannot know.
QUESTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("window", {}, "rows"),
    ("streams", {}, "rows"),
    ("overlap", {}, "rows"),
    ("exposed", {"top": 0}, "rows"),
    ("breakdown", {}, "rows"),
    ("idle", {}, "rows"),
    ("idle", {"by": "cause"}, "by_cause"),
]


def test_the_commands_find_the_truth_in_nsys_files(scenario: Scenario, tmp_path: Path) -> None:
    simulate_to(scenario, tmp_path, ("nsys",))
    expected = json.loads((tmp_path / "truth.json").read_text())
    profile = api.open(str(tmp_path / "*.sqlite"), cache=False)
    for command, options, section in QUESTIONS:
        got = api.analyse(profile, command, **options).rows.to_dicts()
        _compare(command, got, expected[command][section])
    if "(whole" not in expected["window"]["rows"][0]["label"]:
        got = api.analyse(profile, "iterations").rows.to_dicts()
        _compare("iterations", got, expected["iterations"]["rows"])


def _compare(command: str, got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    # Whether a file says which axis a communicator serves is another question than what this stream's ranges say.
    columns = [c for c in wanted[0] if c != "purpose"]

    def key(row: dict[str, Any]) -> str:
        return json.dumps([row[c] for c in columns if not isinstance(row[c], float)], default=str)

    for mine, theirs in zip(sorted(got, key=key), sorted(wanted, key=key), strict=True):
        for c in columns:
            close = isinstance(theirs[c], float)
            assert mine[c] == (pytest.approx(theirs[c], rel=1e-12) if close else theirs[c]), (command, c, theirs)


def test_one_rank_alone_has_answers_too() -> None:
    found = truth(engine.run(Scenario(schedule="ddp", pp=1, ep=1, micro_batches=1, steps=1)))
    assert found["window"]["rows"][0]["label"] == "step 0"
    assert [row["label"] for row in found["iterations"]["rows"]] == ["step 0"]
    assert found["collectives"]["rows"] == found["overlap"]["rows"] == []
    assert found["breakdown"]["rows"][0]["compute_pct"] > 95


def test_files_of_one_job(tmp_path: Path) -> None:
    written = simulate_to(Scenario(ep=1, nodes=2, micro_batches=4, steps=1), tmp_path, ("nsys", "kineto"))
    names = ["node0.sqlite", "rank0.pt.trace.json.gz", "node1.sqlite", "rank1.pt.trace.json.gz", "truth.json"]
    assert [p.name for p in written] == names
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)

"""Logs of steps as profiles: `iterations`, `run`, `compare` and `gate` answer from them what they can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope import api
from stepscope.annotate.recorder import Recorder, Settings
from stepscope.errors import BadInput, CannotAnswer, GateFailed

MS = 1_000_000


def log(path: Path, times: list[int], **more: object) -> Path:
    lines = [json.dumps({"step": k, "ns": ms * MS, **more}) for k, ms in enumerate(times)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_step_is_a_row(tmp_path):
    rows = api.open(log(tmp_path / "steps.jsonl", [50, 60, 70])).iterations().rows
    assert rows.select("rank", "label", "cpu_ns", "gpu_ns").rows() == [
        (0, f"step {k}", ns * MS, None) for k, ns in enumerate([50, 60, 70])
    ]


def test_a_checkpoint_outside_the_capture_is_seen_in_the_pace(tmp_path):
    result = api.open(log(tmp_path / "steps.jsonl", [57, 57, 862] * 5)).run()
    kinds = result.rows.filter(result.rows["part"] == "steps").select("kind", "n", "every").rows()
    assert kinds == [("usual", 9, None), ("longer", 5, 3)]
    assert result.rows["compute_ns"].to_list() == [None] * result.rows.height  # nothing of the GPU was recorded


def test_begins_tell_what_lies_between(tmp_path):
    lines = [{"step": k, "ns": 50 * MS, "began_ns": (52 * k + 400 * (k > 4)) * MS, "rank": 3} for k in range(10)]
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = api.open(tmp_path / "steps.jsonl").run().rows
    assert rows["rank"].unique().to_list() == [3]
    assert rows.filter(rows["part"] == "between steps").select("n", "total_ns").rows() == [(1, 400 * MS)]


def test_ranks_of_a_folder(tmp_path):
    for rank in range(3):
        log(tmp_path / f"rank{rank}.jsonl", [50 + rank] * 4)
    assert api.open(tmp_path).iterations().rows["rank"].unique().to_list() == [0, 1, 2]


def test_compare_and_gate_judge_the_step_of_two_logs(tmp_path):
    base = log(tmp_path / "base.jsonl", [50, 51, 50, 49, 50, 51, 50, 50] * 3)
    slow = log(tmp_path / "slow.jsonl", [60, 61, 60, 59, 60, 61, 60, 60] * 3)
    result = api.compare(base, slow, cache=False)
    assert result.summary["verdict"] == "slower"
    assert result.rows.select("part", "base_ns", "new_ns").rows() == [("unsplit", 50 * MS, 60 * MS)]
    assert "on the host" in " ".join(result.notes)
    with pytest.raises(GateFailed, match="p99"):
        api.gate(base, slow, limits=["p99=5", "mean=50", "step=50"], cache=False)
    again = api.save_baseline([base], str(tmp_path / "kept.json"), cache=False)
    with pytest.raises(GateFailed, match="step"):
        api.gate(again, slow, limits=["step=2"], cache=False)
    with pytest.raises(CannotAnswer):
        api.open(base).breakdown()


def test_beside_a_profile_it_is_left_out(tmp_path):
    from pairs import scenario
    from stepscope.simulate.run import simulate_to

    simulate_to(scenario(1, steps=2), tmp_path / "job")
    log(tmp_path / "job" / "steps.jsonl", [50, 50])
    assert [s.format for s in api.open(tmp_path / "job", cache=False).sources] == ["nsys-sqlite"]


@pytest.mark.parametrize("text", ['{"step": 1, "ns": -5}\n', '{"about": {}}\n', '{"step": 1, "ns": "long"}\n'])
def test_a_log_without_steps_is_refused(tmp_path, text):
    (tmp_path / "steps.jsonl").write_text(text)
    with pytest.raises(BadInput, match="no line is a step"):
        api.open(tmp_path / "steps.jsonl").iterations()


def test_lines_that_cannot_be_read_are_counted(tmp_path):
    path = log(tmp_path / "steps.jsonl", [50, 60])
    path.write_text(path.read_text() + '{"step": 2, "n')
    result = api.open(path).iterations()
    assert result.rows.height == 2 and any(n.code == "file-cut-short" for n in result.notes)


def test_what_the_recorder_writes_is_a_log(tmp_path):
    recorder = Recorder(Settings("none", 1, 2, tmp_path), each=False)
    recorder.rank = 2
    for k in range(4):
        recorder.begin(10 + k, None)
        recorder.end(10 + k)
    assert recorder._file is not None
    recorder._file.close()
    rows = api.open(tmp_path / "steps").iterations().rows
    assert rows.select("rank", "label").rows() == [(2, f"step {10 + k}") for k in range(4)]

"""The pace of the program outside what was captured of it, and logs of steps alone: figures worked out on paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake import call, make, nvtx, op
from stepscope import api
from stepscope.capture.step_times import program_steps
from stepscope.model.profile import Profile
from stepscope.model.program import ProgramSteps

MS = 1_000_000


def recorded(lengths: tuple[float, ...] = (64, 64, 64, 64, 64)) -> Profile:
    """A capture of steps, each with one kernel that fills it."""
    ops, calls, ranges, at = [], [], [], 0
    for k, ms in enumerate(lengths):
        end = at + round(ms * MS)
        calls.append(call(at + 1000, at + 6000, k + 1))
        ops.append(op(at + 10_000, end - 1000, call=k + 1))
        ranges.append(nvtx(at, end, f"step {k}"))
        at = end
    return make(ops=ops, calls=calls, ranges=ranges)


@pytest.fixture
def captured(monkeypatch):
    """A capture of a program whose other steps were timed."""

    def of(program: ProgramSteps, *lengths: tuple[float, ...]) -> Profile:
        monkeypatch.setattr(Profile, "program_steps", program)
        return recorded(*lengths)

    return of


def program(*lengths_ms: float) -> ProgramSteps:
    """All of them timed without the profiler."""
    return ProgramSteps([ms * MS for ms in lengths_ms], [False] * len(lengths_ms), [True] * len(lengths_ms))


def diagnosed(profile: Profile) -> tuple[dict[str, dict[str, object]], list[str]]:
    answer = api.analyse(profile, "diagnose")
    rows = {row["id"]: row for row in answer.rows.iter_rows(named=True)}
    return rows, [str(note) for note in answer.notes if note.code == "step-not-usual"]


def test_a_checkpoint_outside_the_capture_is_seen_in_the_pace(captured):
    """Every 50 steps one takes 350 ms more: 7 ms a step."""
    rows, notes = diagnosed(captured(program(*(64 + 350 * (k % 50 == 49) for k in range(2000)))))
    (found,) = rows.values()
    assert found["id"] == "pace" and found["recoverable_ns"] == pytest.approx(7 * MS, rel=0.01)
    assert found["title"] == "steps outside the capture take 414 ms instead of 64 ms, every 50 steps"
    assert "--warmup 48 --steps 3" in str(found["try_next"]) and found["cause"] == "possible"
    assert notes == ["the captured step is not the usual one: 64 ms; the mean of 2,000 steps is 71 ms"]


def test_a_steady_program_is_not_accused(captured):
    assert diagnosed(captured(program(*(64 + k % 3 / 10 for k in range(400))))) == ({}, [])


def test_a_host_that_runs_ahead_and_waits_is_not_accused(captured):
    """It reads the loss every ten steps: nine steps of 10 ms on the host, then one of 550. The mean is the GPU's."""
    assert diagnosed(captured(program(*(10 + 540 * (k % 10 == 9) for k in range(400))))) == ({}, [])


def test_a_checkpoint_inside_the_capture_is_not_told_twice(captured):
    """Three of nine samples have it, 100 ms a step in the mean, as in the program."""
    lengths = tuple(64 + 300 * (k % 3 == 2) for k in range(10))
    rows, notes = diagnosed(captured(program(*(64 + 300 * (k % 3 == 2) for k in range(300))), lengths))
    assert "pace" not in rows and notes == []


def test_few_steps_say_nothing(captured):
    assert diagnosed(captured(program(*[64.0] * 8, 900.0))) == ({}, [])


def manifest(backend: str, steps: list[tuple[int, bool]], began: list[int] | None = None) -> dict[str, object]:
    times = {"step_ns": {"0": steps}} | ({"step_began_ns": {"0": began}} if began else {})
    return {"scenario": {"backend": backend}, "captured": times}


def test_which_steps_of_the_program_count():
    """Not the first two, nor recorded ones, nor the one after; of torch.profiler not the one before either."""
    steps = [(9, False)] * 4 + [(20, True)] * 2 + [(9, False)] * 3
    plain = program_steps(manifest("nsys", steps))
    assert plain is not None and plain.lengths_ns == [9, 9, 9, 9, 20, 20, 9, 9, 9]
    assert plain.counted == [False, False, True, True, False, False, False, True, True]
    torch = program_steps(manifest("torch", steps))
    assert torch is not None and torch.counted == [False, False, True, False, False, False, False, True, True]


def test_what_lies_between_two_steps_is_in_the_second():
    told = program_steps(manifest("nsys", [(10, False)] * 3, [0, 10, 70]))
    assert told is not None and told.lengths_ns == [10, 10, 60]
    assert program_steps(manifest("nsys", [])) is None


def log(path: Path, *lengths_ms: float) -> Path:
    lines = [json.dumps({"step": k, "ns": round(ms * MS)}) for k, ms in enumerate(lengths_ms)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_of_steps_is_diagnosed(tmp_path):
    """Of 400 steps every 100th is 800 ms longer: 8 ms a step, though nothing tells why."""
    file = log(tmp_path / "steps.jsonl", *(57 + k % 3 / 10 + 800 * (k % 100 == 99) for k in range(400)))
    answer = api.open(file, cache=False).diagnose()
    (found,) = answer.rows.iter_rows(named=True)
    assert (found["id"], found["cause"]) == ("spikes", "possible")
    assert found["title"] == "the step is longer by 800 ms every 100 steps"
    assert found["recoverable_ns"] == pytest.approx(8 * MS, rel=0.01)
    assert answer.summary["mean_step_ns"] == pytest.approx(65.1 * MS, rel=0.01)
    assert {"launch-bound", "exposed-communication"} <= {s["id"] for s in answer.summary["skipped"]}


def test_a_log_that_grows_and_one_that_is_steady(tmp_path):
    grows = api.open(log(tmp_path / "grows.jsonl", *(57 + k % 3 / 10 + k / 10 for k in range(200))), cache=False)
    (found,) = grows.diagnose().rows.iter_rows(named=True)
    assert found["id"] == "drift" and found["recoverable_ns"] == pytest.approx(9.9 * MS, rel=0.02)
    steady = api.open(log(tmp_path / "steady.jsonl", *(57 + k % 3 / 10 for k in range(200))), cache=False).diagnose()
    assert steady.rows.height == 0 and "steps are alike" in steady.summary["statement"]


def test_two_logs_are_compared_and_gated(tmp_path):
    """The second run's steps take 3 % more, and its mean, by a checkpoint every 20 steps, 10 % more."""
    base = log(tmp_path / "base.jsonl", *(50 + k % 3 / 10 for k in range(200)))
    new = log(tmp_path / "new.jsonl", *(51.5 + k % 3 / 10 + 70 * (k % 20 == 19) for k in range(200)))
    answer = api.compare(base, new, cache=False)
    assert answer.summary["verdict"] == "slower"
    assert answer.summary["step"]["change_pct"] == pytest.approx(3.0, abs=0.1)
    assert answer.summary["step"]["mean_change_pct"] == pytest.approx(10.0, abs=0.3)


def test_a_mean_that_a_few_steps_move_is_said(tmp_path):
    """The usual step is as long as before; every 50th takes 800 ms more, 16 ms a step."""
    base = log(tmp_path / "base.jsonl", *(57 + k % 3 / 10 for k in range(400)))
    new = log(tmp_path / "new.jsonl", *(57 + k % 3 / 10 + 800 * (k % 50 == 49) for k in range(400)))
    said = api.compare(base, new, cache=False).summary["statement"]
    assert "no difference of the median step" in said
    assert "the mean step changes by +28.0 % (57.1 ms to 73.1 ms;" in said
    assert "the mean" not in api.compare(base, base, cache=False).summary["statement"]

"""The causes in ../shared/traps, on profiles of a few lines: they were answered wrongly, or not at all.

Each has one cause and no more. The files themselves are asked in `test_traps.py`, where they are. One process with
several GPUs is in `model/test_devices.py`, several runs of one folder in `sources/test_runs.py`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fake import Row, call, make, nvtx, op
from stepscope import api, questions
from stepscope.cli.main import run
from stepscope.errors import BadInput, CannotAnswer, StepscopeError
from stepscope.model.profile import Profile
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

US, MS = 1_000, 1_000_000
_JOB = Scenario(schedule="1f1b", pp=2, ep=1, layers=2, micro_batches=2, steps=3)


@pytest.fixture(scope="module", params=["nsys", "kineto"])
def traced(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of a job. nsys's clock begins long before a capture."""
    folder = tmp_path_factory.mktemp("job")
    simulate_to(_JOB, folder, (request.param,))
    return folder


def _everything(profile: Profile, **window: Any) -> None:
    """All questions answer or refuse in one line."""
    for name in questions.names():
        with suppress(StepscopeError):
            api.analyse(profile, name, **(window if questions.get(name).windowed else {}))


def _launched(*ops: Row) -> dict[str, list[Row]]:
    """The ops, each with the call that launched it, 5 us before."""
    return {
        "ops": [{**row, "correlation": n} for n, row in enumerate(ops, 1)],
        "calls": [call(row["start_ns"] - 5 * US, row["start_ns"] - 4 * US, n) for n, row in enumerate(ops, 1)],
    }


def test_ops_of_no_length() -> None:
    """`diagnose` looked for the first gap between ops that take time, and there was none."""
    none = [
        op(at, at, "gemm") if at % 2 else op(at, at, "ncclDevKernel_AllReduce", 9) for at in range(100_001, 100_007)
    ]
    profile = make(**_launched(*none), ranges=[nvtx(0, 200 * US, "step 0"), nvtx(201 * US, 400 * US, "step 1")])
    assert api.analyse(profile, "diagnose").rows.height >= 0
    _everything(profile)


def test_a_copy_of_no_length_has_no_rate() -> None:
    """A step copies 4 KiB in 0 ns, and the next one's copy runs within it, exposed: it was divided by 0."""
    memcpy = {"kind": "memcpy", "copy_kind": "HtoD", "bytes": 4096}
    ops = [op(20 * US, 40 * US, call=1), op(50 * US, 50 * US, "[copy]", 20, 2) | memcpy, op(200 * US, 210 * US, call=3)]
    ops += [op(110 * US, 160 * US, "[copy]", 21, 4) | memcpy, op(220 * US, 230 * US, call=5)]
    calls = [call(at * US, at * US + 500, n) for n, at in enumerate((5, 10, 15, 80, 90), 1)]
    profile = make(ops=ops, calls=calls, ranges=[nvtx(0, 60 * US, "step 0"), nvtx(70 * US, 130 * US, "step 1")])
    assert api.analyse(profile, "diagnose", index=0).rows.height
    _everything(profile)


@pytest.mark.parametrize("question", [n for n in questions.names() if questions.get(n).windowed])
def test_a_window_beyond_the_capture(question: str, traced: Path) -> None:
    """`nvtx` had no row to join; others said that the GPU was idle for all of it."""
    profile = api.open(traced, cache=False)
    for window in ({"start": "500s", "end": "600s"}, {"start": "100000s", "end": "100001s"}):
        with pytest.raises(StepscopeError) as refused:
            api.analyse(profile, question, **window)
        assert isinstance(refused.value, CannotAnswer) or "outside the capture, which lasts" in str(refused.value)


def test_a_window_beyond_the_capture_is_exit_2(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for question in ("nvtx", "breakdown", "diagnose"):
        assert run([question, str(traced), "--start", "500s", "--end", "600s", "--no-cache"]) == 2
        assert "outside the capture, which lasts" in capsys.readouterr().err


def test_times_are_counted_from_the_beginning(traced: Path) -> None:
    """A time of nsys's clock is days after boot: 100 ms of it were long before the capture, and idle."""
    profile = api.open(traced, cache=False)
    whole = profile.breakdown(whole=True).rows
    end = f"{int(whole['window_ns'].max()) // 2}ns"  # type: ignore[arg-type]
    rows = profile.breakdown(start="0ms", end=end).rows
    assert set(rows["window_ns"]) == {int(end[:-2])} and (rows["compute_ns"] > 0).all()


def test_windows_of_an_instant(traced: Path) -> None:
    """`diagnose` replayed a window of one microsecond, in which no op begins."""
    profile = api.open(traced, cache=False)
    length = int(profile.breakdown(whole=True).rows["window_ns"].max())  # type: ignore[arg-type]
    for at in (0, length // 3, length // 2, length - 1000):
        for name in ("diagnose", "critical-path", "launches", "nvtx", "breakdown"):
            with suppress(StepscopeError):
                api.analyse(profile, name, start=f"{at}ns", end=f"{at + 1000}ns")


def test_a_window_between_ops_is_said_to_be_empty() -> None:
    """It was "no compute kernel was recorded on ranks :", and the capture was said to have ended before its work."""
    profile = make(**_launched(op(MS, 2 * MS), op(5 * MS, 6 * MS)))
    window = {"start": "2ms", "end": "3ms"}
    answer = api.analyse(profile, "diagnose", **window)
    assert "No GPU work lies in the window" in answer.summary["statement"]
    assert {skipped["why"] for skipped in answer.summary["skipped"]} == {"no GPU work lies in the window"}
    assert "rank 0: no GPU work in the window, but after it" in api.analyse(profile, "breakdown", **window).notes


def test_a_step_that_ends_before_it_begins() -> None:
    """Its ops run an hour before the calls that launch them: a step of -3600 s was an answer."""
    early = {3: -3600 * 10**9}
    ops, calls, ranges = [], [], []
    for step in (1, 2, 3, 4):
        for k in range(3):
            at, ran = step * MS + 200 * US * k, step * MS + 200 * US * k + early.get(step, 0)
            ops.append(op(ran + 20 * US, ran + 150 * US, call=3 * step + k))
            calls.append(call(at, at + 5 * US, 3 * step + k))
        ranges.append(nvtx(step * MS, step * MS + 990 * US, f"step {step}"))
    profile = make(ops=ops, calls=calls, ranges=ranges)
    with pytest.raises(CannotAnswer, match="'step 3' ends before it begins: its records contradict each other"):
        api.analyse(profile, "critical-path", index=2)
    _everything(profile)


def test_an_id_that_repeats_is_of_the_nearest_call_before() -> None:
    """The first call with an id was taken, however far away: one step had the ops of all."""
    steps = [0, 10 * MS, 20 * MS]
    ops = [op(at + n * MS + 10 * US, at + n * MS + 900 * US, call=n) for at in steps for n in (1, 2, 3)]
    calls = [call(at + n * MS, at + n * MS + 5 * US, n) for at in steps for n in (1, 2, 3)]
    profile = make(ops=ops, calls=calls, ranges=[nvtx(at, at + 9 * MS, f"step {at // MS}") for at in steps])
    assert profile.ops["launch"].to_list() == list(range(9))
    compute = [api.analyse(profile, "breakdown", index=n).rows["compute_ns"].to_list() for n in range(3)]
    assert compute == [[3 * 890 * US]] * 3
    (note,) = [n for n in profile.notes if n.code == "correlation-repeats"]
    assert str(note).startswith("3 correlation ids")


def test_a_file_of_one_process_counts_ids_of_its_own() -> None:
    """Two processes with the same ids: nothing repeats."""
    tables = _launched(op(10 * US, 20 * US), op(30 * US, 40 * US))
    both = {name: [{**row, "proc": p} for p in (0, 1) for row in rows] for name, rows in tables.items()}
    profile = make(**both)
    assert profile.ops["launch"].len() == 4
    assert not [n for n in profile.notes if n.code == "correlation-repeats"]


@pytest.mark.parametrize("question", ["breakdown", "diagnose", "stragglers"])
def test_two_runs_side_by_side_are_no_job(question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They were one job: a step as long as the time between them, and a straggler that is not there."""
    for name, start in (("monday", 1_700_000_000_000_000), ("tuesday", 1_700_086_400_000_000)):
        _kineto(tmp_path / f"{name}.pt.trace.json", start)
    assert run([question, str(tmp_path), "--no-cache"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "runs" in said and "monday" in said and "compare" in said
    with pytest.raises(BadInput, match="runs"):
        api.open(tmp_path, cache=False)


def _kineto(path: Path, start_us: int) -> None:
    events: list[dict[str, Any]] = []
    for n in range(1, 9):
        at = start_us + 1000 * n
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": at, "dur": 5,
             "args": {"correlation": n}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 10, "dur": 500,
             "args": {"correlation": n, "device": 0, "stream": 7}},
        ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

"""Every undamaged input of ../shared/traps: what was answered wrongly of it, or not at all."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from stepscope import api, questions
from stepscope.cli.main import run
from stepscope.errors import StepscopeError

_TRAPS = Path(__file__).resolve().parents[3] / "shared" / "traps"
pytestmark = pytest.mark.skipif(not _TRAPS.is_dir(), reason="needs ../shared/traps")


def _trap(begins: str) -> str:
    return str(next(_TRAPS.glob(f"{begins}*")))


def _answer(capsys: pytest.CaptureFixture[str], *line: str) -> dict:
    assert run([*line, "--format", "json", "--no-cache"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("trap", ["03_diagnose", "04_diagnose"])
def test_ops_and_copies_of_no_length_are_diagnosed(trap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", _trap(trap), "--no-cache"]) == 0
    assert "this is a bug" not in capsys.readouterr().err


def test_a_window_beyond_the_capture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nvtx", _trap("05"), "--start", "500s", "--end", "600s", "--no-cache"]) == 2
    assert "outside the capture, which lasts" in capsys.readouterr().err


def test_times_count_from_the_captures_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """The trace's clock begins long before it: idle for 100 % was the answer of a time when nothing was recorded."""
    found = _answer(capsys, "breakdown", _trap("05"), "--start", "0ms", "--end", "5ms", "--rank", "0")
    assert found["rows"][0]["window_ns"] == 5_000_000
    assert found["rows"][0]["compute_ns"] > 0


def test_a_step_never_ends_before_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["critical-path", _trap("06"), "--no-cache"]) == 3
    assert "ends before it begins: its records contradict each other" in capsys.readouterr().err


def test_ids_that_repeat_lead_to_the_nearest_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A step of 417 ms and two of none were found, where all take about 136."""
    found = _answer(capsys, "iterations", _trap("02"))
    assert [130 < row["gpu_ns"] / 1e6 < 150 for row in found["rows"]] == [True] * 4
    assert any("474 correlation ids were given to several calls" in note for note in found["notes"])


def test_compute_of_one_gpu_hides_nothing_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _answer(capsys, "overlap", _trap("01_comm"))["rows"]
    assert [(row["rank"], row["comm_ns"], row["exposed_ns"]) for row in rows if row["n"]] == [(0, 10**8, 10**8)]
    rows = _answer(capsys, "breakdown", _trap("01_one"), "--whole")["rows"]
    assert [275 <= row["idle_ns"] / 1e6 <= 296 for row in rows] == [True] * 4


@pytest.mark.parametrize("trap", sorted(p.name for p in _TRAPS.glob("0*")) if _TRAPS.is_dir() else [])
def test_an_instant_of_the_capture(trap: str) -> None:
    """A microsecond of it, for every question."""
    profile = api.open(_TRAPS / trap, cache=False)
    for name in questions.names():
        window = {"start": "200us", "end": "201us"} if questions.get(name).windowed else {}
        with suppress(StepscopeError):
            api.analyse(profile, name, **window)


def test_a_capture_that_is_all_start_up_gives_back_no_more_than_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Shares are of what follows the start-up. Where nothing does, they were 3.6e14 % of a nanosecond."""
    rows = _answer(capsys, "diagnose", _trap("06"), "--whole", "--least", "0.5")["rows"]
    assert rows and all(0 <= row["share_pct"] <= 100 for row in rows)

"""`stepscope PATH`: a short diagnosis, what it is of, and what else one may ask."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stepscope.cli.main import run
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

JOB = Scenario(
    schedule="ddp", pp=1, ep=1, dp=2, layers=2, micro_batches=2, steps=3, faults=("dataloader:rank=1,stall_ms=9",)
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    simulate_to(JOB, folder, ("nsys",))
    return folder


def look(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_what_stands_out_and_what_to_ask_next(job: Path, capsys):
    said = look(job, capsys)
    assert "1. the GPU waits for input on rank 1 could save 9" in said
    assert "cause certain try: prefetch" in said
    assert "Nothing marks a step" not in said
    for command in ("diagnose", "run", "breakdown", "kernels", "stragglers", "serve"):
        assert f"stepscope {command} {job}" in said
    assert f"stepscope report {job} -o report.html" in said


@pytest.mark.parametrize(("left", "says"), [("text = 'data'", "stepscope nvtx"), ("0", "stepscope capture run")])
def test_a_trace_without_steps_says_how_to_have_some(job: Path, tmp_path: Path, capsys, left: str, says: str):
    path = tmp_path / "steps_gone.sqlite"
    path.write_bytes((job / "node0.sqlite").read_bytes())
    with sqlite3.connect(path) as db:
        db.execute(f"DELETE FROM NVTX_EVENTS WHERE NOT ifnull({left}, 0)")
    said = look(path, capsys)
    assert f"Nothing marks a step in this trace, so that all figures are of the whole capture. `{says}" in said
    assert "(whole capture)." not in said

"""End to end: the simulator's file, read as any other, gives the rows that the simulator says it must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

#: Columns whose truth the trace does not state: what a stream is for is known only where ranges or groups say so.
UNSTATED = {"streams": {"purpose"}}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    simulate_to(Scenario(micro_batches=8, steps=2, seed=3, faults=("straggler:rank=3",)), folder, ("nsys",))
    return folder


@pytest.mark.parametrize("command", ["setup", "window", "streams", "overlap", "breakdown", "iterations"])
def test_the_answer_is_the_truth(job, command):
    truth = json.loads((job / "truth.json").read_text())[command]["rows"]
    rows = api.analyse(api.open(job / "node0.sqlite", cache=False), command).rows.to_dicts()
    assert len(rows) == len(truth) > 0
    for row, want in zip(rows, truth, strict=True):
        stated = {k: v for k, v in want.items() if k in row and k not in UNSTATED.get(command, ())}
        assert len(stated) > 3
        for column, value in stated.items():
            expected = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert row[column] == expected, (row, column)

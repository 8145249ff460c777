"""What `diagnose` says of the run around the step that it looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairs import scenario
from stepscope import api
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

CODES = ("run-beyond-the-step", "capture-starts-up")


def said(folder: Path, *faults: str) -> list[str]:
    job = engine.run(scenario(3, steps=12, faults=faults))
    write_nsys.write(assemble.trace(job), 0, folder / "run.sqlite")
    result = api.open(folder / "run.sqlite", cache=False).diagnose()
    return [str(n) for n in result.notes if n.code in CODES]


def test_a_healthy_run_has_nothing_beyond_its_step(tmp_path):
    assert said(tmp_path) == []


def test_one_late_step_of_twelve(tmp_path):
    """60 ms over the eleven steps that count: 5.45 ms a step."""
    (text,) = said(tmp_path, "spike:at=5,ms=60")
    assert "1 step of 11 is a spike, 60" in text and "(5.45 ms a step)" in text


def test_a_checkpoint_in_every_third_step(tmp_path):
    (text,) = said(tmp_path, "checkpoint:every=3,ms=40")
    assert "every 3 steps one takes" in text


def test_an_evaluation_between_steps_is_named(tmp_path):
    (text,) = said(tmp_path, "evaluation:every=3,where=between")
    assert "3 stretches between steps (`evaluation`)" in text


def test_a_growing_step(tmp_path):
    (text,) = said(tmp_path, "drift:us=300")
    assert "the step grows by 3" in text  # 10 times 300 us


@pytest.mark.parametrize("name", ["startup_weights_2.7B.sqlite"])
def test_weights_that_are_uploaded_are_start_up(shared, name):
    notes = [str(n) for n in api.open(shared / "judged" / name).diagnose().notes if n.code in CODES]
    assert len(notes) == 1 and "of this capture is start-up" in notes[0]

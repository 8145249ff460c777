"""All steps as bars: parts sum to the step, and the step that was planted late is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pairs import scenario
from stepscope import api
from stepscope.report.asker import Asker
from stepscope.report.sections import steps
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine


def asker(folder: Path, *faults: str, count: int = 12) -> Asker:
    job = engine.run(scenario(3, steps=count, faults=faults))
    write_nsys.write(assemble.trace(job), 0, folder / "run.sqlite")
    profile = api.open(folder / "run.sqlite", cache=False)

    def answer(name: str, **options: Any) -> Any:
        return api.analyse(profile, name, **options)

    return Asker(answer, ("run.sqlite",))


def test_every_step_is_a_bar(tmp_path: Path) -> None:
    part = steps.make(asker(tmp_path, "spike:at=5,ms=60"))
    rows = part.data["rows"]
    assert [row["label"] for row in rows] == [f"step {k}" for k in range(12)]
    assert [row["label"] for row in rows if row["spike"]] == ["step 5"] and rows[0]["cut"] == "begin"
    for row in rows:
        parts = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
        assert sum(row[name] for name in parts) == row["step_ns"]
    assert part.data["look"] == "stepscope breakdown run.sqlite" and part.data["left_out"] == 0


def test_a_capture_of_one_step_has_no_bars(tmp_path: Path) -> None:
    assert not steps.wanted(asker(tmp_path, count=1))

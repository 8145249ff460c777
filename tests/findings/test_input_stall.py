"""One captured step whose input came late: every schedule's breakdown, diagnosis and gate see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from marks import slow_unless
from stepscope import api
from stepscope.cli.main import run
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

STALL_NS = 40_000_000
JOBS: dict[str, dict[str, int]] = {
    "dualpipev": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 4},
    "1f1b": {"pp": 2, "ep": 1, "layers": 2, "micro_batches": 4},
    "interleaved": {"pp": 2, "ep": 1, "layers": 4, "micro_batches": 4},
    "zero-bubble": {"pp": 2, "ep": 1, "layers": 2, "micro_batches": 4},
    "fsdp": {"pp": 1, "dp": 2, "ep": 1, "layers": 2, "micro_batches": 2},
    "ddp": {"pp": 1, "dp": 2, "ep": 1, "layers": 2, "micro_batches": 2},
}


@pytest.mark.parametrize("kind", ["nsys", "kineto"])
@pytest.mark.parametrize("schedule", slow_unless("ddp".__eq__, JOBS))
@pytest.mark.slow
def test_a_stall_of_the_input_is_seen_in_one_step(schedule: str, kind: str, tmp_path: Path, capsys):
    files = []
    for name, faults in (("healthy", ()), ("stalled", (f"dataloader:stall_ms={STALL_NS / 1e6}",))):
        scenario = Scenario(schedule=schedule, steps=1, seed=11, faults=faults, **JOBS[schedule])
        simulate_to(scenario, tmp_path / name, (kind,))
        files.append(str(tmp_path / name / ("*.sqlite" if kind == "nsys" else "*.json.gz")))
    healthy, stalled = (api.open(pattern, cache=False) for pattern in files)

    before, after = healthy.breakdown().rows, stalled.breakdown().rows
    for column in ("idle_ns", "window_ns"):
        for grown in (after[column] - before[column]).to_list():
            assert grown == pytest.approx(STALL_NS, rel=0.02), column

    assert "data-stall" not in healthy.diagnose().rows["id"].to_list()
    first = stalled.diagnose().rows.to_dicts()[0]
    assert first["id"] == "data-stall"
    assert first["recoverable_ns"] == pytest.approx(STALL_NS, rel=0.1)

    # One step a side is too few to call it slower: the gate says so, and does not pass.
    assert run(["gate", files[0], "--to", files[1], "--no-cache"]) == 1
    assert "most of it idle time (+40 ms of +40 ms)" in " ".join(capsys.readouterr().out.split())
    assert run(["gate", files[0], "--to", files[1], "--no-cache", "--allow-inconclusive"]) == 0

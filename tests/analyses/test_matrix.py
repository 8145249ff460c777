"""Every schedule with every fault: the commands give the simulator's truth, to the nanosecond, from either format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from marks import slow_unless
from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

FAULTS = (
    "straggler:rank=1,factor=1.5",
    "slow-host:rank=1,factor=4",
    "dataloader:stall_ms=3",
    "host-syncs",
    "serialized",
    "tiny-kernels:split=8",  # with more, the truth has more gaps than it lists
    "alloc",
    "imbalance:rank=1",
    "slow-link:node=1,factor=3",
    "late-node:node=1,delay_us=800",
    "clock:node=1,offset_us=500,drift_ppm=20",
)
#: Reading torch traces is tested on some of the jobs: the analyses are the same.
BOTH_FORMATS = (None, "alloc", "clock:node=1,offset_us=500,drift_ppm=20")
#: schedule -> its mesh; small, but with every axis that the schedule can have
MESHES: dict[str, dict[str, int]] = {
    "dualpipev": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6},
    "1f1b": {"pp": 2, "ep": 2, "layers": 2, "micro_batches": 4},
    "interleaved": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 4},
    "zero-bubble": {"pp": 2, "ep": 2, "layers": 2, "micro_batches": 4},
    "fsdp": {"pp": 1, "dp": 2, "ep": 2, "layers": 2, "micro_batches": 2},
    "ddp": {"pp": 1, "dp": 2, "ep": 2, "layers": 2, "micro_batches": 2},
}
COMMANDS: dict[str, dict[str, Any]] = {
    "setup": {},
    "window": {},
    "streams": {},
    "overlap": {},
    "exposed": {"top": 0},
    "breakdown": {},
    "idle": {},
    "iterations": {},
}
#: What the trace does not state: a stream's purpose where no range or group names it, and Kineto's host.
UNSTATED = {("nsys", "streams"): {"purpose"}, ("kineto", "streams"): {"purpose"}, ("kineto", "setup"): {"host"}}


#: Columns that are a moment, not a length: Kineto counts from another zero.
MOMENTS = {"cpu_start_ns", "cpu_end_ns", "gpu_start_ns", "gpu_end_ns", "start_ns", "gap_start_ns"}


def compare(rows: list[dict[str, Any]], truth: list[dict[str, Any]], skip: set[str], zero: dict[int, int]) -> None:
    assert len(rows) == len(truth)
    for row, want in zip(rows, truth, strict=True):
        for column, value in want.items():
            if column in skip or column not in row:
                continue
            got = row[column]
            if column in MOMENTS and got is not None:
                got -= zero[row["rank"]]
            same = (
                math.isclose(got, value, rel_tol=1e-12)
                if isinstance(value, float) and got is not None
                else got == value
            )
            assert same, (column, got, value, row)


def zeros(profile: api.Profile, truth: dict[str, Any]) -> dict[int, int]:
    """By rank: what its file's clock shows when the simulation's shows zero, by the start of the window."""
    starts = {w["rank"]: w["cpu_start_ns"] for w in api.analyse(profile, "window").rows.to_dicts()}
    return {w["rank"]: starts[w["rank"]] - w["cpu_start_ns"] for w in truth["window"]["rows"]}


def one_axis(schedule: str, fault: str | None) -> bool:
    """Faults of each kind on one schedule, and another schedule without a fault."""
    kinds = ("straggler", "host-syncs", "tiny-kernels", "late-node", "clock")
    return (schedule == "fsdp" and (fault is None or fault.startswith(kinds))) or (schedule, fault) == ("1f1b", None)


@pytest.mark.parametrize(
    ("schedule", "fault"), slow_unless(one_axis, MESHES, (None, *FAULTS)), ids=lambda f: str(f).split(":")[0]
)
def test_the_answer_is_the_truth(schedule: str, fault: str | None, tmp_path: Path) -> None:
    faults = () if fault is None else (fault,)
    steps = 1 if schedule == "dualpipev" else 2  # the window of a trainer that marks no steps is the capture
    scenario = Scenario(schedule=schedule, nodes=2, steps=steps, seed=11, faults=faults, **MESHES[schedule])
    formats = ("nsys", "kineto") if fault in BOTH_FORMATS else ("nsys",)
    simulate_to(scenario, tmp_path, formats)
    truth = json.loads((tmp_path / "truth.json").read_text())
    for kind in formats:
        pattern = "*.sqlite" if kind == "nsys" else "*.json.gz"
        profile = api.open(str(tmp_path / pattern), cache=False)
        zero = zeros(profile, truth)
        assert kind == "kineto" or not any(zero.values())
        for command, options in COMMANDS.items():
            rows = api.analyse(profile, command, **options).rows.to_dicts()
            skip = UNSTATED.get((kind, command), set())
            wanted = truth[command]["rows"]
            key = ("rank", "start_ns", "stream") if command == "exposed" else None
            if key:  # ties in exposed time have no order
                rows, wanted = (sorted(r, key=lambda x: [x[k] for k in key]) for r in (rows, wanted))
            compare(rows, wanted, skip, zero)

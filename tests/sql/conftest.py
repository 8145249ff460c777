"""A simulated job of four ranks on two nodes, one of them slow: its truth is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

pytest.importorskip("duckdb")


@dataclass(frozen=True)
class Job:
    folder: Path
    truth: dict[str, Any]
    profile: api.Profile


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("sql")
    shape = {"schedule": "fsdp", "pp": 1, "dp": 4, "ep": 1, "nodes": 2, "layers": 2, "micro_batches": 2, "steps": 3}
    simulate_to(Scenario(**shape, seed=7, faults=("straggler:rank=3,factor=1.5",)), folder, ("nsys",))
    return Job(folder, json.loads((folder / "truth.json").read_text()), api.open(folder, cache=False))

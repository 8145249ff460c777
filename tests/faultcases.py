"""Simulated jobs with a planted fault, and what `diagnose` says of them beside the truth."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from stepscope import api
from stepscope.model.result import Result
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.truth import step_times

#: schedule -> a small job; two nodes of two ranks, unless a case says otherwise
MESHES: dict[str, dict[str, int]] = {
    "1f1b": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2, "steps": 2},
    "fsdp": {"pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2, "nodes": 2, "steps": 2},
    "dualpipev": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2, "steps": 2},
    "interleaved": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2, "steps": 2},
    "zero-bubble": {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2, "steps": 2},
    "ddp": {"pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2, "nodes": 2, "steps": 2},
}
#: How far from the truth a figure may be, as a share of it.
WITHIN = 0.10


@dataclass(frozen=True)
class Told:
    """A result, the time per step that the planted fault costs, and the ranks that it is on."""

    result: Result
    truth_ns: int
    ranks: list[int]

    @property
    def first(self) -> dict[str, Any]:
        rows = self.result.rows.to_dicts()
        return rows[0] if rows else {}

    def __str__(self) -> str:
        rows = [
            f"{r['id']} on {r['ranks']}: {r['recoverable_ns'] / 1e6:.3f} ms ({r['share_pct']:.1f} %)"
            for r in self.result.rows.to_dicts()
        ]
        share = 100.0 * self.truth_ns / self.result.summary["step_ns"]
        return f"truth {self.truth_ns / 1e6:.3f} ms ({share:.1f} %) on {self.ranks}; said: " + "; ".join(rows)


def scenario(schedule: str, fault: str | None = None, seed: int = 5, **more: Any) -> Scenario:
    """A small job of a schedule, with a fault."""
    return Scenario(schedule=schedule, seed=seed, faults=(fault,) if fault else (), **{**MESHES[schedule], **more})


def diagnosed(given: Scenario, **options: Any) -> Told:
    """The job simulated, written and diagnosed; its traces are gone afterwards."""
    job = engine.run(given)
    with profile_of(given, job) as profile:
        result = api.analyse(profile, "diagnose", **options)
    return Told(result, *_truth(job))


@contextmanager
def profile_of(given: Scenario, job: Job | None = None) -> Iterator[api.Profile]:
    """The job's profile, as long as its traces are there."""
    job = engine.run(given) if job is None else job
    folder = Path(mkdtemp())
    try:
        for node in range(given.nodes):
            write_nsys.write(assemble.trace(job, [node]), node, folder / f"node{node}.sqlite")
        yield api.open(folder, cache=False)
    finally:
        shutil.rmtree(folder)


@cache
def _steps(given: Scenario) -> list[int]:
    """Step times of a job: the healthy one is the same for all faults of a schedule."""
    return step_times(engine.run(given))


def _truth(job: Job) -> tuple[int, list[int]]:
    """What the first fault costs in the window, by running the job without it, and its ranks.

    The window is a step; of a trainer that marks only chunks it is the capture, with all its steps.
    """
    if not job.scenario.faults:
        return 0, []
    fault = job.scenario.planted[0]
    other = _steps(engine.without(job.scenario, 0))
    saved = sorted(a - b for a, b in zip(step_times(job), other, strict=True))
    ranks = [r.rank for r in job.mesh.ranks]
    if (pair := fault.pair()) is not None:
        ranks = sorted(pair)
    elif (node := fault.params.get("node")) is not None:
        ranks = [r.rank for r in job.mesh.ranks if r.node == node]
    elif (rank := fault.params.get("rank")) is not None:
        ranks = [rank]
    return sum(saved) if job.scenario.schedule == "dualpipev" else saved[len(saved) // 2], ranks

"""Simulating from Python: a scenario in; a trace, files or the truth out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files.whole import building_set
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import SimTrace

#: The answers that the other commands must give, beside the traces.
TRUTH = "truth.json"


def job(scenario: Scenario) -> Job:
    """Run the simulation; the result holds every rank's record on the true clock."""
    return engine.run(scenario)


def simulate(scenario: Scenario) -> SimTrace:
    """The whole job as one trace."""
    return assemble.trace(engine.run(scenario))


def truth(done: Job) -> dict[str, Any]:
    """The rows that every command must give for a job."""
    from stepscope.simulate.truth import truth as answers

    return answers(done)


def _prepare(scenario: Scenario, folder: Path) -> None:
    """Refuse a folder where traces of ranks that this job has not would stay beside its truth."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"-o {folder}: cannot be made ({error.strerror})", "name another directory") from None
    if not folder.exists():
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"-o {folder}: no permission to write there", "name another directory")
    mine = {f"node{n}.sqlite" for n in range(scenario.nodes)}
    mine |= {f"rank{r}.pt.trace.json.gz" for r in range(scenario.world)}
    there = {p.name for pattern in ("node*.sqlite", "rank*.pt.trace.json.gz") for p in folder.glob(pattern)}
    if others := sorted(there - mine):
        raise BadInput(f"-o {folder}: holds {others[0]}, of another job", "name another directory, or empty it")


def simulate_to(scenario: Scenario, folder: Path, formats: Sequence[str] = ("nsys",)) -> list[Path]:
    """Simulate a job and write its traces into `folder`, and `truth.json` beside them. Returns what was written.

    All of it or nothing: who finds a truth finds its traces.
    """
    _prepare(scenario, folder)
    done = engine.run(scenario)
    with building_set(folder, TRUTH) as beside:
        written = _write(done, beside, formats)
    return [folder / path.name for path in written]


def _write(done: Job, folder: Path, formats: Sequence[str]) -> list[Path]:
    from stepscope.simulate.kineto import write as write_kineto
    from stepscope.simulate.nsys import write as write_nsys

    scenario = done.scenario
    written = []
    # One node at a time: a large job's columns are many times the size of its records.
    for node in range(scenario.nodes):
        progress.report("writing", node, scenario.nodes)
        trace = assemble.trace(done, [node])
        if "nsys" in formats:
            path = folder / f"node{node}.sqlite"
            write_nsys.write(trace, node, path)
            written.append(path)
        if "kineto" in formats:
            each = scenario.gpus_per_process
            for first in range(0, len(trace.ranks), each):
                rank, *others = (r.rank for r in trace.ranks[first : first + each])
                path = folder / f"rank{rank // each}.pt.trace.json.gz"  # of the process
                write_kineto.write(trace, rank, path, *others)
                written.append(path)
        del trace
    path = folder / TRUTH
    path.write_text(json.dumps(truth(done), sort_keys=True, separators=(",", ":")) + "\n")
    return [*written, path]

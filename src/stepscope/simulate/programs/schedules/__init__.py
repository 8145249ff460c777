"""What each rank does in a step, schedule by schedule."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.simulate.engine.rank import Wait
from stepscope.simulate.programs.layers import Worker
from stepscope.simulate.programs.schedules import data_parallel, dualpipev, pipelines, two_stage

#: One step of a schedule on one rank.
STEP: dict[str, Callable[[Worker, int], Wait]] = {
    "ddp": data_parallel.ddp,
    "fsdp": data_parallel.fsdp,
    "1f1b": pipelines.one_f_one_b,
    "interleaved": pipelines.interleaved,
    "zero-bubble": pipelines.zero_bubble,
    "dualpipev": dualpipev.step,
    "two-stage": two_stage.step,
}


def program(worker: Worker) -> Wait:
    """All that a rank does in the capture."""
    sim, s = worker.sim, worker.scenario
    label = sim.label(worker.mesh.ranks[sim.rank].setup)
    for number in range(s.steps):
        first = len(sim.op_start)
        yield from STEP[s.schedule](worker, number)
        sim.steps.append((first, len(sim.op_start)))
    sim.close(label)

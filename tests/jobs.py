"""Simulated jobs with a planted fault, written as files and read back: what `stragglers` must say of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from stepscope import api
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.kineto import write as write_kineto
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.execute import Job

#: What each fault of a single rank makes of it.
CAUSES = {
    "straggler": "compute",
    "more-launches": "compute",
    "larger-batch": "compute",
    "imbalance": "compute",
    "slow-host": "host",
    "host-syncs": "host",
    "tiny-kernels": "host",
    "alloc": "host",
    "dataloader": "data",
}
_SMALL = (
    {"schedule": "dualpipev", "pp": 2, "ep": 4, "layers": 4, "micro_batches": 4},
    {"schedule": "dualpipev", "pp": 2, "ep": 2, "dp": 2, "layers": 4, "micro_batches": 4},
    {"schedule": "1f1b", "pp": 4, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 8},
    {"schedule": "1f1b", "pp": 8, "ep": 1, "dp": 1, "layers": 8, "micro_batches": 8},
    {"schedule": "1f1b", "pp": 2, "ep": 2, "dp": 2, "tp": 2, "layers": 4, "micro_batches": 4},
    {"schedule": "zero-bubble", "pp": 4, "ep": 2, "dp": 2, "layers": 4, "micro_batches": 8},
    {"schedule": "interleaved", "pp": 4, "ep": 1, "dp": 2, "tp": 1, "layers": 8, "micro_batches": 8},
    {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 8, "layers": 4, "micro_batches": 4},
    {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 4, "tp": 2, "cp": 2, "layers": 4, "micro_batches": 2},
    {"schedule": "fsdp", "pp": 1, "ep": 1, "dp": 8, "layers": 4, "micro_batches": 4},
    {"schedule": "fsdp", "pp": 1, "ep": 4, "dp": 4, "layers": 4, "micro_batches": 2},
)
_LARGE = (
    {"schedule": "dualpipev", "pp": 4, "ep": 8, "dp": 1, "layers": 8, "micro_batches": 8},
    {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 16, "tp": 4, "layers": 2, "micro_batches": 2},
    {"schedule": "fsdp", "pp": 1, "ep": 1, "dp": 128, "layers": 2, "micro_batches": 1},
    {"schedule": "1f1b", "pp": 4, "ep": 1, "dp": 8, "tp": 4, "layers": 4, "micro_batches": 4},
)
_HUGE = (
    {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 64, "tp": 8, "layers": 2, "micro_batches": 1},
    {"schedule": "1f1b", "pp": 8, "ep": 1, "dp": 8, "tp": 8, "layers": 8, "micro_batches": 8},
)


@dataclass(frozen=True)
class Case:
    """A job, the ranks that must have a cause, and which."""

    scenario: Scenario
    guilty: tuple[int, ...]
    cause: str


def case(seed: int) -> Case:
    """The case of a seed: schedule, mesh, nodes, clocks and fault all follow from it."""
    r = random.Random(seed)
    shape = dict(r.choice(_HUGE if seed % 100 == 99 else _LARGE if seed % 10 == 9 else _SMALL))
    world = 1
    for axis in ("pp", "dp", "ep", "tp", "cp"):
        world *= shape.get(axis, 1)
    nodes = r.choice([n for n in (1, 2, 4, 8, 16, 32, 64) if world % n == 0 and n * 2 <= world])
    faults, guilty, cause = _fault(r, shape, world, nodes)
    clocks = [
        f"clock:node={n},offset_us={r.uniform(-1e6, 1e6):.3f},drift_ppm={r.uniform(-50, 50):.2f}" for n in range(nodes)
    ]
    known = r.random() < 0.8 and nodes > 1
    scenario = Scenario(
        **shape, nodes=nodes, steps=r.choice((2, 3)), seed=seed, faults=(*faults, *(clocks if known else ()))
    )
    return Case(scenario, guilty, cause)


def _fault(
    r: random.Random, shape: dict[str, object], world: int, nodes: int
) -> tuple[list[str], tuple[int, ...], str]:
    rank, per_node = r.randrange(world), world // nodes
    choices = ["straggler"] * 3 + ["slow-host", "dataloader", "host-syncs", "tiny-kernels", "alloc"]
    if nodes > 1:
        choices += ["late-node"]
    if int(str(shape["ep"])) > 1:
        choices += ["imbalance"]
    if shape["schedule"] == "interleaved" or shape["pp"] == 8:
        choices.remove("alloc")  # there it only makes memory grow, or costs a few in 10,000 of the step (the truth)
    name = r.choice(choices)
    if name == "late-node":
        node = r.randrange(nodes)
        return [f"late-node:node={node},delay_us=8000"], tuple(range(node * per_node, (node + 1) * per_node)), "host"
    more = {"straggler": f",factor={r.choice((1.1, 1.3, 1.5, 2.0))}", "imbalance": f",factor={r.choice((1.5, 2.0))}"}
    return [f"{name}:rank={rank}{more.get(name, '')}"], (rank,), CAUSES[name]


@contextmanager
def written(
    scenario: Scenario, formats: tuple[str, ...] = ("nsys",), folder: Path | None = None
) -> Iterator[tuple[Job, Path]]:
    """The job, and a directory with its traces, gone afterwards."""
    made = Path(mkdtemp(dir=folder))
    try:
        job = engine.run(scenario)
        for node in range(scenario.nodes):
            trace = assemble.trace(job, [node])
            if "nsys" in formats:
                write_nsys.write(trace, node, made / f"node{node}.sqlite")
            for rank in trace.ranks if "kineto" in formats else ():
                write_kineto.write(trace, rank.rank, made / f"rank{rank.rank}.pt.trace.json.gz")
        yield job, made
    finally:
        shutil.rmtree(made)


def verdict(given: Case, jobs: int = 1) -> str | None:
    """None where the guilty and only they are named, with the right cause; else what was said."""
    with written(given.scenario) as (_, folder):
        result = api.analyse(api.open(folder, cache=False, jobs=jobs), "stragglers")
    said = {row["rank"]: row["cause"] for row in result.rows.to_dicts() if row["cause"]}
    if said == dict.fromkeys(given.guilty, given.cause):
        return None
    return f"{given.scenario.faults[0]} on {given.scenario}: expected {given.guilty} {given.cause}, said {said}"

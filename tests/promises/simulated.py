"""Simulated jobs with and without a fault, the same in all else: every schedule, fault, size and strength.

The truth is the difference of the steps' lengths, the median over steps; of a job that marks none, over the capture.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from jobs import written
from promises.pair import Healthy, Pair, Told, asked
from stepscope.model.ranks import ranks_text
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.truth import step_times
from stepscope.simulate.truth.stragglers import hit

#: fault -> the findings that would name it, and its strengths; `{r}` is a rank, `{n}` a node
FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "straggler": (
        ("straggler",),
        ("rank={r},factor=1.1", "rank={r},factor=1.3", "rank={r},factor=1.5", "rank={r},factor=2"),
    ),
    "imbalance": (("expert-imbalance",), ("rank={r},factor=1.3", "rank={r},factor=2", "rank={r},factor=3")),
    "slow-host": (("launch-bound",), ("factor=6", "rank={r},factor=12", "factor=16")),
    "dataloader": (("data-stall",), ("stall_ms=4", "rank={r},stall_ms=8", "stall_ms=15", "stall_ms=40")),
    "host-syncs": (("host-sync",), ("per_layer=4", "rank={r},per_layer=8", "per_layer=16")),
    "tiny-kernels": (("tiny-kernels",), ("split=16", "rank={r},split=24", "split=32")),
    "alloc": (("allocator-churn",), ("per_layer=2", "rank={r},per_layer=3", "per_layer=4")),
    "serialized": (("serialized-communication",), ("how=wait", "how=stream", "rank={r},how=wait")),
    "slow-link": (("slow-link",), ("node={n},factor=3", "node={n},factor=5", "node={n},factor=10")),
    "late-node": (("late-node",), ("node={n},delay_us=5000", "node={n},delay_us=12000", "node={n},delay_us=25000")),
}
#: schedule -> jobs of several sizes
SHAPES: dict[str, tuple[dict[str, Any], ...]] = {
    "1f1b": (
        {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2},
        {"pp": 4, "ep": 1, "dp": 2, "layers": 4, "micro_batches": 8, "nodes": 4},
        {"pp": 4, "ep": 2, "layers": 8, "micro_batches": 8, "nodes": 4, "seq": 8192},
    ),
    "interleaved": (
        {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2},
        {"pp": 4, "ep": 1, "layers": 8, "micro_batches": 8, "nodes": 4},
        {"pp": 4, "ep": 2, "layers": 8, "micro_batches": 8, "nodes": 4},
    ),
    "zero-bubble": (
        {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2},
        {"pp": 4, "ep": 1, "layers": 4, "micro_batches": 8, "nodes": 4},
        {"pp": 4, "ep": 2, "layers": 8, "micro_batches": 8, "nodes": 4},
    ),
    "dualpipev": (
        {"pp": 2, "ep": 2, "layers": 4, "micro_batches": 6, "nodes": 2},
        {"pp": 4, "ep": 2, "layers": 8, "micro_batches": 8, "nodes": 4},
        {"pp": 2, "ep": 4, "layers": 4, "micro_batches": 8, "nodes": 2, "seq": 8192},
    ),
    "fsdp": (
        {"pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2, "nodes": 2},
        {"pp": 1, "dp": 8, "ep": 1, "layers": 4, "micro_batches": 2, "nodes": 4},
        {"pp": 1, "dp": 4, "ep": 2, "layers": 8, "micro_batches": 2, "nodes": 4, "seq": 8192},
    ),
    "ddp": (
        {"pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2, "nodes": 2},
        {"pp": 1, "dp": 1, "ep": 1, "layers": 4, "micro_batches": 4, "nodes": 1},
        {"pp": 1, "dp": 4, "ep": 1, "tp": 2, "layers": 4, "micro_batches": 4, "nodes": 4},
    ),
}
#: seeds, and how many of the cases are tried: a number that shares no factor with the sizes of the product
SEEDS = {"quick": (5,), "full": (5, 11)}
EACH = {"quick": 7, "full": 1}


@dataclass(frozen=True)
class Case:
    """A job to simulate, and the tool in whose format it is written."""

    schedule: str
    shape: dict[str, Any]
    fault: str
    how: str
    seed: int
    tool: str


def cases(scale: str) -> list[Case]:
    return list(_all(scale))[:: EACH[scale]]


def _all(scale: str) -> Iterator[Case]:
    number = 0
    for seed, (schedule, shapes), (fault, (_, strengths)) in product(SEEDS[scale], SHAPES.items(), FAULTS.items()):
        for shape, how in product(shapes, strengths):
            if _can(shape, fault):
                number += 1
                yield Case(schedule, shape, fault, how, seed, "torch" if number % 4 == 0 else "nsys")


def _can(shape: dict[str, Any], fault: str) -> bool:
    world = _world(shape)
    if fault == "imbalance":
        return bool(shape["ep"] > 1)
    if fault == "slow-link":  # told by comparison with like links: two nodes have one
        return bool(shape["nodes"] > 2)
    if fault == "late-node":
        return bool(shape["nodes"] > 1)
    return fault not in ("straggler", "serialized") or world > 1


def _world(shape: dict[str, Any]) -> int:
    world = 1
    for axis in ("pp", "dp", "ep", "tp"):
        world *= shape.get(axis, 1)
    return world


def scenario(case: Case) -> Scenario:
    world = _world(case.shape)
    chance = random.Random(f"{case.schedule} {case.shape} {case.fault} {case.how} {case.seed}")
    how = case.how.format(r=chance.randrange(world), n=chance.randrange(case.shape["nodes"]))
    return Scenario(schedule=case.schedule, steps=3, seed=case.seed, faults=(f"{case.fault}:{how}",), **case.shape)


def pair(case: Case) -> Pair:
    """The job with its fault, diagnosed, beside the same without."""
    given = scenario(case)
    formats = ("nsys",) if case.tool == "nsys" else ("kineto",)
    with written(given, formats) as (job, folder):
        told = asked(folder)
        steps = step_times(job)
        ranks = hit(job, given.planted[0])
    other, beside = twin(engine.without(given, 0), case.tool)
    saved = sorted(a - b for a, b in zip(steps, other, strict=True))
    # DualPipeV's trainer marks no steps: what is promised is for the capture.
    many = len(saved) if told.of_capture else 1
    truth = sum(saved) if told.of_capture else saved[len(saved) // 2]
    return Pair(
        name(case.schedule, case.shape, case.seed),
        case.tool,
        given.faults[0],
        FAULTS[case.fault][0],
        truth,
        many * (saved[-1] - saved[0]) / 2,
        told.step_ns,
        told.said,
        ranks_text(ranks),
        max((s.ns for s in beside.said), default=0),
        case.fault,
    )


def name(schedule: str, shape: dict[str, Any], seed: int) -> str:
    axes = " ".join(f"{k}={v}" for k, v in shape.items() if k in ("pp", "dp", "ep", "tp") and v > 1)
    return f"{schedule} {axes or 'one rank'} seed {seed}"


@lru_cache(maxsize=64)
def twin(given: Scenario, tool: str) -> tuple[list[int], Told]:
    """The steps of a healthy job, and what is said of it: the same for all faults of a shape."""
    with written(given, ("nsys",) if tool == "nsys" else ("kineto",)) as (job, folder):
        return step_times(job), asked(folder)


def healthy(schedule: str, shape: dict[str, Any], seed: int, tool: str) -> Healthy:
    _, told = twin(Scenario(schedule=schedule, steps=3, seed=seed, **shape), tool)
    return Healthy(name(schedule, shape, seed), tool, told.step_ns, told.said)


def twins(scale: str) -> list[tuple[str, dict[str, Any], int, str]]:
    every = [
        (schedule, shape, seed, tool)
        for seed, (schedule, shapes), tool in product(SEEDS[scale], SHAPES.items(), ("nsys", "torch"))
        for shape in shapes
    ]
    return every[:: EACH[scale]]

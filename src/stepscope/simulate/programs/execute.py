"""Runs the programs of all ranks: each until it needs another rank, in turn, until all are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stepscope import progress
from stepscope.errors import BadInput
from stepscope.simulate.engine.network import Matched, Network
from stepscope.simulate.engine.rank import RankSim, Wait
from stepscope.simulate.engine.record import Tables
from stepscope.simulate.job import costs
from stepscope.simulate.job.blocks import POOL, Names, jitter_table
from stepscope.simulate.job.mesh import Mesh, build
from stepscope.simulate.job.model import Model, kernels_per_stage, layer_parts
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.layers import Faults, Worker
from stepscope.simulate.programs.schedules import program

#: Hosts vary more than GPUs.
_HOST_SPREAD = 3.0


@dataclass
class Job:
    """A simulated job: what every rank did, on the true clock."""

    scenario: Scenario
    mesh: Mesh
    names: list[str]
    sims: list[RankSim]
    transfers: list[Matched] = field(default_factory=list)

    def step_ends(self) -> list[int]:
        """When the last rank was done with each step."""
        return [
            max(max(sim.op_end[slice(*sim.steps[number])]) for sim in self.sims)
            for number in range(self.scenario.steps)
        ]


def run(s: Scenario) -> Job:
    """Simulate a job."""
    mesh, names = build(s), Names()
    network = Network(s, mesh.ranks, mesh.groups, jitter_table(f"{s.seed}/network", s.jitter))
    tables = _Tables(s)
    models: dict[int, Model] = {}
    scale = _scale(s)
    sims, programs = [], []
    for rank in range(s.world):
        tiny = s.fault("tiny-kernels", rank)
        split = int(tiny.params["split"]) if tiny else 1
        if split not in models:
            models[split] = Model(s, names, scale, split)
        start = costs.CAPTURE_LEAD + (rank * 7919 + s.seed * 101) % costs.START_SPREAD
        sim = RankSim(rank, names, tables(rank), network, start)
        sims.append(sim)
        programs.append(program(Worker(sim, models[split], mesh, s, _faults(s, rank, mesh.ranks[rank].node))))
    drive(network, sims, programs)
    return Job(s, mesh, names.texts, sims, network.transfers)


def drive(network: Network, sims: Sequence[RankSim], programs: Sequence[Wait]) -> None:
    """Run the program of each rank until it needs another rank, in turn, until all are done."""
    left = len(sims)
    ready = network.ready
    ready.extend(sims)
    while ready:
        sim = ready.popleft()
        try:
            next(programs[sim.rank])
        except StopIteration:
            left -= 1
            progress.report("simulating", len(sims) - left, len(sims))
    if left:
        stuck = [sim.rank for sim in sims if sim.blocked is not None]
        raise RuntimeError(f"the schedule deadlocks: ranks {stuck} wait for {network.open_count()} communications")


def without(s: Scenario, index: int) -> Scenario:
    """The same job without one of its faults."""
    return replace(s, faults=tuple(spec for i, spec in enumerate(s.faults) if i != index))


class _Tables:
    """Jitter tables, one per factor: most ranks share theirs."""

    def __init__(self, s: Scenario) -> None:
        self._s = s
        self._made: dict[tuple[str, float], list[int]] = {}

    def __call__(self, rank: int) -> Tables:
        s = self._s
        slow = _product(s, "straggler", rank)
        work = slow * _product(s, "larger-batch", rank)
        return Tables(
            kernel=self._table("kernel", s.jitter, work),
            expert=self._table("kernel", s.jitter, work * _product(s, "imbalance", rank)),
            weights=self._table("kernel", s.jitter, slow),
            host=self._table("host", s.jitter * _HOST_SPREAD, _product(s, "slow-host", rank)),
        )

    def _table(self, purpose: str, sigma: float, factor: float) -> list[int]:
        key = (purpose, factor)
        if key not in self._made:
            self._made[key] = jitter_table(f"{self._s.seed}/{purpose}", sigma, factor)
        return self._made[key]


def _product(s: Scenario, name: str, rank: int) -> float:
    factor = 1.0
    for fault in s.planted:
        if fault.name == name and fault.hits(rank):
            factor *= fault.params["factor"]
    return factor


def _faults(s: Scenario, rank: int, node: int) -> Faults:
    faults = Faults(skew=_product(s, "imbalance", rank))
    for fault in s.planted:
        p = fault.params
        if fault.name == "late-node" and p["node"] == node:
            faults.delay_ns += round(p["delay_us"] * 1000)
        if not fault.hits(rank):
            continue
        if fault.name in ("spike", "drift", "checkpoint", "evaluation", "penalty", "noise"):
            faults.of_the_run.append(fault)
        elif fault.name == "dataloader":
            faults.stall_ns += round(p["stall_ms"] * 1_000_000)
        elif fault.name == "host-syncs":
            faults.items += p["per_layer"]
        elif fault.name == "more-launches":
            faults.extra += p["per_layer"]
        elif fault.name == "reduce-always":
            faults.reduces = True
        elif fault.name == "one-bucket":
            faults.one_bucket = True
        elif fault.name == "no-prefetch":
            faults.unfetched = True
        elif fault.name == "slow-python":
            faults.python_ns += round(p["us"] * 1000)
        elif fault.name == "alloc":
            faults.allocations += p["per_layer"]
        elif fault.name == "serialized":
            faults.inline |= p["how"] == "stream"
            faults.waits |= p["how"] == "wait"
    return faults


def _scale(s: Scenario) -> float:
    """How much larger the model must be for the number of kernels asked for."""
    if s.kernels is None:
        return s.scale
    counts = kernels_per_stage()
    layer = sum(n for name, n in counts.items() if name.partition("_")[0] in layer_parts(s))
    repeats = s.world // s.pp * s.steps * s.micro_batches * s.layers
    fixed = repeats * (6 * (s.ep > 1) + 4 * (s.tp > 1) + 2 * (s.cp - 1) + 2 * (s.pp > 1))
    scale = max(s.kernels - fixed, 0) / (repeats * (layer + 2 * (s.cp - 1)))
    most = POOL // max(counts.values())
    if scale > most:
        raise BadInput(
            f"--kernels {s.kernels}: too many for one layer", "give more --layers, --micro-batches or --steps"
        )
    return max(scale, 1e-3)

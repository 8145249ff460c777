"""The job to simulate: every option, checked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from stepscope.errors import BadInput
from stepscope.simulate.job import faults as fault_module
from stepscope.simulate.job.faults import Fault

SCHEDULES = ("dualpipev", "1f1b", "interleaved", "zero-bubble", "fsdp", "ddp", "two-stage")
#: Mesh axes from outer to inner.
AXES = ("pp", "dp", "cp", "ep", "tp")
_MOST_RANKS = 4096
#: Beyond these a step lasts for years, and nanoseconds no longer fit their 64 bits.
_MOST_SEQ, _MOST_MBS = 10_000_000, 10_000


@dataclass(frozen=True)
class Scenario:
    """Options of `stepscope simulate`. `faults` are specs such as `straggler:rank=3,factor=1.5`."""

    schedule: Annotated[str, f"How micro-batches go through the pipeline: {', '.join(SCHEDULES)}."] = "dualpipev"
    pp: Annotated[int, "Pipeline stages."] = 2
    dp: Annotated[int, "Data-parallel replicas."] = 1
    cp: Annotated[int, "Context-parallel ranks."] = 1
    ep: Annotated[int, "Expert-parallel ranks."] = 4
    tp: Annotated[int, "Tensor-parallel ranks."] = 1
    nodes: Annotated[int, "Hosts, each with a clock and a file of its own."] = 1
    gpus_per_process: Annotated[int, "GPUs that one process drives, a thread for each."] = 1
    layers: Annotated[int, "Layers of the model."] = 4
    micro_batches: Annotated[int, "Micro-batches of a step."] = 16
    steps: Annotated[int, "Steps to record."] = 3
    faults: tuple[str, ...] = ()
    seed: Annotated[int, "The same seed gives the same bytes."] = 0
    kernels: Annotated[int | None, "About so many kernels in total: layers are made larger until that is reached."] = (
        None
    )
    scale: Annotated[float, "Size of the model, as a multiple of its usual number of kernels."] = 1.0
    seq: Annotated[int, "Sequence length."] = 4096
    mbs: Annotated[int, "Size of a micro-batch."] = 1
    vpp: Annotated[int, "Virtual stages per rank, for the interleaved schedule."] = 2
    depth: Annotated[int, "Items under way at most, for the two-stage schedule."] = 2
    jitter: Annotated[float, "Relative spread of durations; 0 makes all alike."] = 0.02

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(self.faults))
        _check(self)

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.pp * self.dp * self.cp * self.ep * self.tp

    @property
    def planted(self) -> tuple[Fault, ...]:
        """The faults, parsed."""
        return tuple(fault_module.parse(spec) for spec in self.faults)

    def fault(self, name: str, rank: int | None = None) -> Fault | None:
        """The first planted fault of that name (that is on `rank`, where given)."""
        return next((f for f in self.planted if f.name == name and (rank is None or f.hits(rank))), None)

    @property
    def virtual_stages(self) -> int:
        """Pieces of the model that one rank holds."""
        return {"dualpipev": 2, "interleaved": self.vpp}.get(self.schedule, 1)

    def as_dict(self) -> dict[str, Any]:
        """For truth.json."""
        return {**asdict(self), "faults": list(self.faults), "world": self.world}


def _check(s: Scenario) -> None:
    if s.schedule not in SCHEDULES:
        raise BadInput(f"--schedule {s.schedule}: not known", f"give one of {', '.join(SCHEDULES)}")
    for option in (
        *AXES,
        "nodes",
        "gpus_per_process",
        "layers",
        "micro_batches",
        "steps",
        "seq",
        "mbs",
        "vpp",
        "depth",
    ):
        if getattr(s, option) < 1:
            raise BadInput(f"--{option.replace('_', '-')} {getattr(s, option)}: too small", "give 1 or more")
    if s.world > _MOST_RANKS:
        raise BadInput(f"{s.world} ranks are too many", f"keep pp·dp·cp·ep·tp at {_MOST_RANKS} or below")
    if s.world % (s.nodes * s.gpus_per_process):
        if s.world % s.nodes == 0:
            each = s.world // s.nodes
            raise BadInput(
                f"{each} GPUs of a node do not spread over processes of {s.gpus_per_process}",
                "give a number that divides the ranks of a node",
            )
        raise BadInput(f"{s.world} ranks do not spread over {s.nodes} nodes", "give nodes that divide pp·dp·cp·ep·tp")
    for option, most in (("seq", _MOST_SEQ), ("mbs", _MOST_MBS)):
        if getattr(s, option) > most:
            raise BadInput(f"--{option} {getattr(s, option)}: too large", f"give {most} or less")
    if s.seed < 0:
        raise BadInput(f"--seed {s.seed}: negative", "give 0 or more")
    if not 0 <= s.jitter <= 0.2:
        raise BadInput(f"--jitter {s.jitter}: out of range", "give 0 to 0.2")
    if not (math.isfinite(s.scale) and s.scale > 0):
        raise BadInput(f"--scale {s.scale}: not positive", "give a positive number")
    if s.kernels is not None and s.kernels < s.world:
        raise BadInput(f"--kernels {s.kernels}: fewer than ranks", f"give {s.world} or more")
    _check_schedule(s)
    for fault in s.planted:
        fault_module.check(fault, s.world, s.nodes, s.ep)


def _check_schedule(s: Scenario) -> None:
    if s.schedule in ("ddp", "fsdp") and s.pp > 1:
        raise BadInput(f"--schedule {s.schedule} has no pipeline", "give --pp 1, or a pipeline schedule")
    if s.schedule in ("ddp", "fsdp"):
        return
    if s.schedule == "two-stage":
        if s.pp != 2:
            raise BadInput(f"--schedule two-stage has 2 stages, not --pp {s.pp}", "give --pp 2")
        return
    stages = s.pp * s.virtual_stages
    if s.layers < stages:
        raise BadInput(f"--layers {s.layers}: fewer than the {stages} stages", f"give --layers {stages} or more")
    if s.schedule == "dualpipev" and s.micro_batches < 2 * s.pp:
        least = 2 * s.pp
        raise BadInput(f"--micro-batches {s.micro_batches}: DualPipeV needs 2·pp", f"give {least} or more")
    if s.schedule == "interleaved" and s.micro_batches % s.pp:
        raise BadInput(f"--micro-batches {s.micro_batches}: interleaving needs a multiple of pp", f"pp is {s.pp}")

"""The plan of a capture: ranks, nodes, batch, steps, and the size to expect. Nothing is adjusted silently."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from stepscope.capture import schedule as schedules
from stepscope.capture import size
from stepscope.errors import BadInput
from stepscope.model.declared import Model

AXES = ("pp", "dp", "cp", "ep", "tp")
WARMUP, STEPS = 5, 1


@dataclass(frozen=True)
class Request:
    """What was asked for. None is "as the plan sees fit"."""

    pp: int = 1
    ep: int = 1
    cp: int = 1
    tp: int = 1
    dp: int | None = None
    seq: int = 4096
    mbs: int = 1
    layers: int | None = None
    model: Model | None = None
    schedule: str = "dualpipev"
    gpus_per_node: int = 8
    #: ranks in all; None: as few as the axes need
    world: int | None = None
    #: GPUs, or nodes, that there are; None: not known
    gpus: int | None = None
    nodes: int | None = None
    micro_batches: int | None = None
    warmup: int = WARMUP
    steps: int = STEPS
    backend: str = "nsys"
    max_size: int = 200_000_000


@dataclass(frozen=True)
class Plan:
    """What to run, and the resulting sizes."""

    pp: int
    dp: int
    cp: int
    ep: int
    tp: int
    world: int
    nodes: int
    gpus_per_node: int
    ranks_per_node: int
    layers: int
    seq: int
    mbs: int
    schedule: str
    micro_batches: int
    global_batch: int
    warmup: int
    steps: int
    #: ranks to trace, and why these
    ranks: tuple[int, ...]
    ranks_why: str
    events_per_rank: int
    #: of the largest file, by kind
    report_bytes: int
    export_bytes: int
    total_bytes: int
    max_size: int

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ranks": list(self.ranks)}


def plan(want: Request) -> Plan:
    """The plan, or a `BadInput` that says what does not fit and what would."""
    _check(want)
    unit = want.pp * want.cp * want.ep * want.tp
    dp = _replicas(want, unit)
    world = unit * dp
    nodes, on_node = _nodes(want, world)
    layers = _layers(want)
    n = want.micro_batches or schedules.good_micro_batches(want.schedule, want.pp)
    schedules.check_micro_batches(want.schedule, n, want.pp)
    dense = want.model.dense_layers / want.pp if want.model else 0.0 if want.ep > 1 else layers / want.pp
    count = size.events(layers / want.pp, dense, n, want.ep, want.cp, want.tp).total * want.steps
    ranks, why = _ranks(want, dp, world, count)
    in_file = 1 if want.backend == "torch" else min(len(ranks), on_node)
    kind = "torch" if want.backend == "torch" else "report"
    report = size.file_bytes(count * in_file, kind)
    export = report if kind == "torch" else size.file_bytes(count * in_file, "export")
    files = len(ranks) if kind == "torch" else math.ceil(len(ranks) / on_node)
    made = Plan(
        want.pp, dp, want.cp, want.ep, want.tp, world, nodes, want.gpus_per_node, on_node, layers, want.seq, want.mbs,
        want.schedule, n, n * want.mbs * dp * want.ep, want.warmup, want.steps, ranks, why, count, report, export,
        files * (report if kind == "torch" else report + export), want.max_size,
    )  # fmt: skip
    if export > want.max_size:
        raise BadInput(
            f"expected size {size.show_size(export)} of one file is over --max-size {size.show_size(want.max_size)}",
            f"drop, in this order: {'; '.join(_drops(want, made))}",
        )
    return made


def _check(want: Request) -> None:
    if want.schedule not in schedules.SCHEDULES:
        raise BadInput(f"--schedule {want.schedule}: not known", f"give one of {', '.join(schedules.SCHEDULES)}")
    for option in ("pp", "ep", "cp", "tp", "seq", "mbs", "gpus_per_node", "steps"):
        if getattr(want, option) < 1:
            raise BadInput(f"--{option.replace('_', '-')} {getattr(want, option)}: too small", "give 1 or more")
    for option in ("dp", "world", "gpus", "nodes", "layers", "micro_batches"):
        if (value := getattr(want, option)) is not None and value < 1:
            raise BadInput(f"--{option.replace('_', '-')} {value}: too small", "give 1 or more")
    if want.warmup < 0:
        raise BadInput(f"--warmup {want.warmup}: negative", "give 0 or more")
    if want.schedule in ("fsdp", "ddp") and want.pp > 1:
        raise BadInput(f"--schedule {want.schedule} has no pipeline", "give --pp 1, or a pipeline schedule")
    experts = want.model.experts if want.model else 0
    if experts and experts % want.ep:
        fitting = [e for e in (1, 2, 4, 8, 16, 32, 64) if experts % e == 0]
        raise BadInput(f"{experts} experts do not divide over ep = {want.ep}", f"give --ep one of {_list(fitting)}")


def _replicas(want: Request, unit: int) -> int:
    """dp as given, or as the world says; else the smallest, 1."""
    axes = f"pp·cp·ep·tp = {want.pp}·{want.cp}·{want.ep}·{want.tp} = {unit}"
    if want.world is not None:
        if want.world % (unit * (want.dp or 1)):
            below = want.world // unit * unit
            near = f"{below} or {below + unit}" if below else str(unit)
            raise BadInput(
                f"a world of {want.world} does not divide by {axes}" + (f" and dp = {want.dp}" if want.dp else ""),
                f"give --world {near}; {_alternatives(want, want.world)}",
            )
        if want.dp is not None and unit * want.dp != want.world:
            raise BadInput(f"--world {want.world} is not {axes} times dp = {want.dp}", "leave one of them out")
    dp = want.dp or (want.world // unit if want.world else 1)
    have = want.gpus if want.gpus is not None else want.nodes * want.gpus_per_node if want.nodes else None
    if have is not None and unit * dp > have:
        what = axes if dp == 1 else f"{axes}, times dp = {dp}"
        raise BadInput(f"have {have} GPUs, need {unit * dp} ({what})", _alternatives(want, have))
    return dp


def _alternatives(want: Request, have: int) -> str:
    """Meshes that fit: nearest first, only halving what was asked for."""
    meshes = [(pp * ep * want.cp * want.tp, pp, ep) for pp in _halves(want.pp) for ep in _halves(want.ep)]
    fitting = sorted((m for m in meshes if m[0] <= have and have % m[0] == 0), key=lambda m: -m[0])
    best = [f"--pp {pp} --ep {ep} ({ranks} GPUs)" for ranks, pp, ep in fitting[:3]]
    nodes = math.ceil(want.pp * want.ep * want.cp * want.tp * (want.dp or 1) / want.gpus_per_node)
    more = f"{nodes} node{'s' * (nodes > 1)} of {want.gpus_per_node} GPUs"
    return f"fits: {', '.join(best)}; or take {more}" if best else f"take {more}"


def _halves(value: int) -> list[int]:
    halves = [value]
    while value % 2 == 0:
        value //= 2
        halves.append(value)
    return halves


def _nodes(want: Request, world: int) -> tuple[int, int]:
    """Nodes, and ranks on each."""
    per = want.gpus_per_node
    if world <= per:
        return 1, world
    if world % per:
        fitting = [d for d in range(per, 0, -1) if world % d == 0]
        raise BadInput(
            f"a world of {world} does not divide over nodes of {per} GPUs",
            f"give --gpus-per-node {fitting[0]} ({world // fitting[0]} nodes), or a --dp that fills nodes",
        )
    nodes = world // per
    if want.nodes is not None and nodes > want.nodes:
        raise BadInput(f"have {want.nodes} nodes, need {nodes}", _alternatives(want, want.nodes * per))
    return nodes, per


def _layers(want: Request) -> int:
    layers = want.layers or (want.model.layers if want.model else None)
    if layers is None:
        raise BadInput("the number of layers is not known", "give --layers N, or --model NAME")
    stages = want.pp * (2 if want.schedule in ("dualpipev", "interleaved") else 1)
    if layers < stages:
        raise BadInput(f"have {layers} layers, need {stages}: a {want.schedule} of pp = {want.pp} has {stages} stages",
                       f"give --layers {stages} or more, or a smaller --pp")  # fmt: skip
    return layers


def _ranks(want: Request, dp: int, world: int, count: int) -> tuple[tuple[int, ...], str]:
    """All, where their files together fit the budget; else one replica: its groups are still whole.

    A node's report holds all ranks of the node, so that only torch.profiler can leave ranks out.
    """
    everyone = tuple(range(world))
    if dp == 1 or want.backend != "torch" or size.file_bytes(count, "torch") * world <= want.max_size:
        return everyone, "all ranks: questions across ranks need complete groups"
    inner = want.cp * want.ep * want.tp
    one = tuple(r for r in everyone if r // inner % dp == 0)
    return one, f"the first of {dp} data-parallel replicas: its pipeline and expert groups are complete"


def _drops(want: Request, made: Plan) -> list[str]:
    """What to leave out first, with what it gives."""
    drops = []
    least = schedules.good_micro_batches(want.schedule, want.pp)
    if want.steps > 1:
        drops.append(f"--steps 1 ({_times(made, 1 / want.steps)})")
    if made.micro_batches > least:
        drops.append(f"--micro-batches {least} ({_times(made, least / made.micro_batches)})")
    if want.backend == "nsys" and made.ranks_per_node > 1:
        drops.append(f"--per rank ({_times(made, 1 / made.ranks_per_node)} a file)")
    stages = want.pp * (2 if want.schedule in ("dualpipev", "interleaved") else 1)
    fewer = max(stages, math.floor(made.layers * want.max_size / made.export_bytes) // stages * stages)
    if fewer < made.layers:
        drops.append(f"--layers {fewer} ({_times(made, fewer / made.layers)}; the shape of a layer stays)")
    drops.append(f"or allow it: --max-size {math.ceil(made.export_bytes / 1e6)}MB")
    return drops


def _times(made: Plan, factor: float) -> str:
    return size.show_size(int(made.export_bytes * factor))


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values))

"""A job as the flight recorder sees it: process groups of its mesh, and the calls of each rank in the order it makes
them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from stepscope.errors import BadInput

AXES = ("tp", "ep", "dp", "pp")
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class HangJob:
    """Sizes of the job; `buffer` is the recorder's ring, `missing` ranks that are innocent leave no dump, and neither
    does the culprit where it is lost. `recorders`: other libraries' recorders are dumped, too."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    ep: int = 1
    layers: int = 2
    micro_batches: int = 2
    steps: int = 6
    seed: int = 0
    jitter: float = 0.1
    buffer: int = 2000
    missing: int = 0
    culprit_lost: bool = False
    timing: bool = True
    batched: bool = False
    shared_names: bool = False
    version: str = "2.10"
    backend: str = "nccl"
    recorders: bool = False

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.dp, self.ep, self.layers, self.micro_batches, self.steps, self.buffer) < 1:
            raise BadInput("a job that hangs needs sizes of at least 1", "give other numbers")
        if self.dp % self.ep:
            raise BadInput(f"--ep {self.ep} does not divide --dp {self.dp}", "experts are spread over replicas")
        if self.world > _MOST_RANKS:
            raise BadInput(f"{self.world} ranks are too many", f"at most {_MOST_RANKS}")

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class SimGroup:
    """A process group: its number among all, its name, what it is for, its ranks, and its library where that is not the
    job's."""

    number: int
    name: str
    purpose: str
    members: tuple[int, ...]
    backend: str = ""


@dataclass
class Call:
    """One call of a rank. `chain`: what follows on the GPU waits for it; `joins`: it waits for all that is under way;
    `sync`: the host waits for it. `pairs` are (source, target) of a batch of sends and receives; of an
    `exchange` they go both ways."""

    group: int
    kind: str
    elements: int
    out: int
    site: str
    dtype: str = "BFloat16"
    chain: bool = True
    joins: bool = False
    sync: bool = False
    pairs: tuple[tuple[int, int], ...] = ()
    compute_ns: int = 0
    step: int = 0


@dataclass
class Program:
    """What every rank calls."""

    job: HangJob
    groups: list[SimGroup]
    calls: list[list[Call]]
    #: by axis and rank, the number of its group
    of: dict[str, list[int]] = field(default_factory=dict)


def program(job: HangJob) -> Program:
    """The calls of a job that goes well."""
    made = Program(job, _groups(job), [])
    made.of = {axis: [-1] * job.world for axis in (*AXES, "all")}
    for group in made.groups:
        for rank in group.members:
            made.of[_axis(group)][rank] = group.number
    random = Random(f"{job.seed} program")
    base = random.randrange(100_000, 2_000_000)
    hidden = random.choice((1, 2, 4)) * (1 << 20)
    for rank in range(job.world):
        calls: list[Call] = []
        for step in range(job.steps):
            before = len(calls)
            calls += _step(made, rank, hidden, base)
            for call in calls[before:]:
                call.step = step
        made.calls.append(calls)
    _jitter(made)
    return made


def _axis(group: SimGroup) -> str:
    return {"default_pg": "all"}.get(group.purpose, group.purpose)


def _groups(job: HangJob) -> list[SimGroup]:
    groups = [SimGroup(0, "0", "default_pg", tuple(range(job.world)))]
    for n, axis in enumerate(AXES, 1):
        for members in _members(job, axis):
            name = str(n) if job.shared_names else str(len(groups))
            groups.append(SimGroup(len(groups), name, axis, members))
    return groups


def _members(job: HangJob, axis: str) -> list[tuple[int, ...]]:
    """Rank = tp + tp_size * (dp + dp_size * pp)."""
    tp, dp, pp, ep = job.tp, job.dp, job.pp, job.ep

    def rank(t: int, d: int, p: int) -> int:
        return t + tp * (d + dp * p)

    if axis == "tp":
        groups = [tuple(rank(t, d, p) for t in range(tp)) for p in range(pp) for d in range(dp)]
    elif axis == "dp":
        groups = [tuple(rank(t, d, p) for d in range(dp)) for p in range(pp) for t in range(tp)]
    elif axis == "pp":
        groups = [tuple(rank(t, d, p) for p in range(pp)) for d in range(dp) for t in range(tp)]
    else:
        starts = [(t, d, p) for p in range(pp) for t in range(tp) for d in range(0, dp, ep)]
        groups = [tuple(rank(t, d + e, p) for e in range(ep)) for t, d, p in starts]
    return [members for members in groups if len(members) > 1]


def _step(made: Program, rank: int, hidden: int, base: int) -> list[Call]:
    job = made.job
    stage = rank // (job.tp * job.dp)
    of = {axis: numbers[rank] for axis, numbers in made.of.items()}
    calls: list[Call] = []

    def layer(n: int, way: str) -> None:
        if of["tp"] >= 0:
            calls.append(
                Call(of["tp"], "_all_gather_base", hidden // job.tp, hidden, f"layers.py:{40 + n}:{way}_attention")
            )
            calls.append(
                Call(of["tp"], "_reduce_scatter_base", hidden, hidden // job.tp, f"layers.py:{60 + n}:{way}_attention")
            )
        if of["ep"] >= 0:
            calls.append(Call(of["ep"], "all_to_all", hidden // 2, hidden // 2, f"moe.py:{30 + n}:{way}_dispatch"))
            calls.append(Call(of["ep"], "all_to_all", hidden // 2, hidden // 2, f"moe.py:{50 + n}:{way}_combine"))
        if of["tp"] >= 0:
            calls.append(Call(of["tp"], "all_reduce", hidden, hidden, f"layers.py:{80 + n}:{way}_mlp"))

    def transfer(source: int, target: int, site: str) -> None:
        kind = "send" if source == stage else "recv"
        pair = ((source, target),)
        calls.append(Call(of["pp"], kind, hidden // 4, hidden // 4, site, chain=kind == "recv", pairs=pair))

    for _ in range(job.micro_batches):
        if stage > 0:
            transfer(stage - 1, stage, "schedules.py:101:recv_forward")
        for n in range(job.layers):
            layer(n, "forward")
        if stage < job.pp - 1:
            transfer(stage, stage + 1, "schedules.py:105:send_forward")
    for micro in range(job.micro_batches):
        if stage < job.pp - 1:
            transfer(stage + 1, stage, "schedules.py:121:recv_backward")
        for n in reversed(range(job.layers)):
            layer(n, "backward")
            if of["dp"] >= 0 and micro == job.micro_batches - 1:
                size = base * job.dp
                calls.append(
                    Call(of["dp"], "_reduce_scatter_base", size, base, "ddp.py:77:reduce_bucket", "Float", chain=False)
                )
        if stage > 0:
            transfer(stage, stage - 1, "schedules.py:125:send_backward")
    calls.append(Call(0, "all_reduce", 1, 1, "trainer.py:212:clip_grad_norm", "Float", joins=True, sync=True))
    if of["dp"] >= 0:
        calls.append(
            Call(of["dp"], "_all_gather_base", base, base * job.dp, "optimizer.py:33:gather_params", joins=True)
        )
    return calls


def _jitter(made: Program) -> None:
    """How long the GPU computes before each call."""
    job = made.job
    for rank, calls in enumerate(made.calls):
        random = Random(f"{job.seed} {rank}")
        for call in calls:
            call.compute_ns = round(8e6 * random.lognormvariate(0.0, job.jitter))

"""The ranks that a run has, beside those that its mesh needs: refused where they differ, never adjusted or rounded."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepscope.capture.plan import AXES, Plan
from stepscope.capture.size import show_size
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import Spec
from stepscope.errors import BadInput

#: Axes whose sizes the options always say; dp may be left out.
SAID = tuple(axis for axis in AXES if axis != "dp")


@dataclass(frozen=True)
class Asked:
    """What the options say of the world. None: not said."""

    axes: Mapping[str, int]
    dp: int | None = None
    world: int | None = None
    nodes: int | None = None

    @property
    def need(self) -> int | None:
        """Ranks in total; None where nothing was said."""
        product = math.prod(self.axes.values())
        if self.world is not None:
            return self.world
        return product * (self.dp or 1) if product > 1 or self.dp else None

    @property
    def text(self) -> str:
        mesh = {**{a: n for a, n in self.axes.items() if n > 1}, **({"dp": self.dp} if self.dp else {})}
        if self.world is not None:
            return f"--world {self.world}"
        return _product(mesh)


def fit(spec: Spec, asked: Asked, made: Plan | None, job: Allocation | None) -> tuple[Spec, Allocation | None]:
    """The run and the nodes it takes, or an error with have and need."""
    need = made.world if made is not None else asked.need
    if asked.world is not None and asked.world % math.prod(asked.axes.values()):
        raise BadInput(
            f"a world of {asked.world} does not divide by {replace(asked, world=None).text}", "give another --world"
        )
    per_node = spec.nproc or (made.ranks_per_node if made is not None else 0)
    nodes = _nodes(asked, need, per_node, bool(spec.nproc), job)
    if spec.nproc and need is not None and spec.nproc * nodes != need:
        many = f"--nproc {spec.nproc}" + (f" on {nodes} nodes" if nodes > 1 else "")
        raise BadInput(
            f"have {spec.nproc * nodes} ranks ({many}), need {need} ({_why(asked, made)})", _advice(need, nodes)
        )
    if job is not None:
        job = replace(job, nodes=nodes)
    return replace(spec, nproc=per_node, world=need or (spec.nproc * nodes or None)), job


def hold(asked: Asked, made: Plan, job: Allocation) -> None:
    """Refuse a plan that the allocation cannot hold, with the words of `fit`."""
    _nodes(asked, made.world, made.ranks_per_node, False, job)


def _nodes(asked: Asked, need: int | None, per_node: int, given: bool, job: Allocation | None) -> int:
    """How many of the nodes there are; an allocation is not taken whole where fewer are needed.

    Outside of one, what `given` ranks on this node lack is told in ranks.
    """
    wanted = -(-need // per_node) if need and per_node else None
    if job is None:
        if wanted is not None and wanted > 1 and not given:
            many = f"{need} ranks, {per_node} on each"
            raise BadInput(
                f"have 1 node (this is not a SLURM allocation), need {wanted} ({many})",
                f"run it inside an allocation (salloc --nodes={wanted}), or give a mesh that fits one node",
            )
        return 1
    if asked.nodes is not None and asked.nodes > job.nodes:
        raise BadInput(
            f"SLURM job {job.job}: have {job.nodes} nodes, need {asked.nodes} (--nodes)",
            f"ask for more (salloc --nodes={asked.nodes})",
        )
    have = asked.nodes or job.nodes
    if wanted is not None and have != wanted:
        fewer = f"give --nodes {wanted} to take {wanted} of them, or --dp or --world for all"
        more = f"ask for more (salloc --nodes={wanted}), or plan for {have}"
        raise BadInput(
            f"SLURM job {job.job}: have {have} nodes, need {wanted} ({need} ranks, {per_node} on each)",
            fewer if have > wanted else more,
        )
    return have


def _product(mesh: Mapping[str, int]) -> str:
    """`pp·ep = 2·8`."""
    return "·".join(mesh) + " = " + "·".join(map(str, mesh.values()))


def _why(asked: Asked, made: Plan | None) -> str:
    if made is None:
        return asked.text
    mesh = {a: getattr(made, a) for a in AXES if getattr(made, a) > 1}
    return _product(mesh) if mesh else "the plan"


def _advice(need: int, nodes: int) -> str:
    if need % nodes == 0:
        return f"give --nproc {need // nodes}, or --dp and a mesh whose product is what there is"
    return "give a mesh whose product divides by the nodes"


def lines(spec: Spec, made: Plan | None, job: Allocation | None) -> list[str]:
    """The plan, to read before anything starts."""
    nodes = job.nodes if job is not None else 1
    mesh = "" if made is None else ": " + " ".join(f"{a}={getattr(made, a)}" for a in AXES)
    where = f"{nodes} of SLURM job {job.job}" if job is not None else "this one"
    on_each = f", {spec.nproc} ranks on each" if spec.nproc else ""
    again = f", again every {spec.every} as long as --max-size lasts" if spec.every else ""
    steps = f"{spec.warmup} warm-up, {spec.steps} profiled{again}" if spec.by_steps else f"--trigger {spec.trigger}"
    size = (
        f"{show_size(made.export_bytes)} the largest file, {show_size(made.total_bytes)} in all, within a factor of two"
        if made is not None
        else "not known without --model or --layers"
    )
    batch = f"{made.global_batch} ({made.micro_batches} micro-batches of {made.mbs} × {made.seq})" if made else None
    facts = {
        "world": f"{spec.world} ranks{mesh}" if spec.world else "as many ranks as the command starts",
        "nodes": f"{where}{on_each}",
        "batch": batch,
        "steps": steps,
        "profiler": " and ".join(spec.backends) + (f", with {', '.join(spec.wants)}" if spec.wants else ""),
        "size": size,
        "output": str(spec.out),
        "command": shlex.join(spec.command),
    }
    return [f"{what:9} {text}" for what, text in facts.items() if text]

"""World size, nodes, batch, steps and size of a capture, before it is run.

Nothing is adjusted silently: what does not fit is an error with the numbers and the alternatives, exit status 2. Sizes
come from a model of the events of a step; expect a factor of two either way. With --model the plan says how much
memory a rank needs, as `stepscope memory --model` estimates it. With --preset it plans the run that `capture run
--preset` makes. Inside a SLURM job, what the allocation cannot hold is refused, as `capture run` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypedDict

from stepscope.capture import slurm, world
from stepscope.capture.plan import Plan
from stepscope.capture.size import show_size
from stepscope.cli.commands._capture_options import Mesh
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import AnyFormat
from stepscope.errors import BadInput
from stepscope.model import declared
from stepscope.model.option import Shell
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Result, rows
from stepscope.model.statement import several
from stepscope.model.units import size


class Row(TypedDict):
    what: Annotated[str, "part of the plan"]
    value: Annotated[float, "its value"]
    why: Annotated[str, "where it comes from"]


#: Micro-batches whose activations the first stage of a schedule holds, beyond one for each stage.
_MORE_IN_FLIGHT = {"dualpipev": 1}


def _plan(
    *,
    asked: Mesh,
    precision: Annotated[Literal["bf16", "autocast", "mixed"], "Precision of the memory estimate."] = "bf16",
    zero: Annotated[int | None, "ZeRO stage of the memory estimate; 3 for fsdp.", Shell(between=(0, 3))] = None,
    recompute: Annotated[bool, "For the memory estimate: layers keep only their input."] = False,
    preset: Annotated[Literal["pithtrain"] | None, "Plan the run of this preset of `capture run`."] = None,
    backend: Annotated[Literal["nsys", "torch"], "Profiler."] = "nsys",
    format: AnyFormat = None,
    output: Annotated[str | None, "File to write the plan to.", Shell(flags=("-o", "--output"), metavar="FILE")] = None,
) -> None:
    target = Target.of(output, format)
    if preset is not None:
        if not asked.model:
            raise BadInput("--preset pithtrain needs --model", "see docs/capture.md")
        asked = asked.of_preset()
    made = asked.plan(backend)
    if (job := slurm.allocation()) is not None:
        axes = {axis: getattr(asked, axis) for axis in world.SAID}
        world.hold(world.Asked(axes, asked.dp, asked.world, asked.nodes), made, job)
    mesh = " ".join(f"{a}={getattr(made, a)}" for a in ("pp", "dp", "cp", "ep", "tp"))
    steps = f"{made.warmup} + {made.steps}"
    table = [
        ("world", several(made.world, "rank"), mesh),
        ("nodes", f"{made.nodes} of {made.gpus_per_node} GPUs", f"{several(made.ranks_per_node, 'rank')} on each"),
        ("micro-batches", str(made.micro_batches), f"the median chunk of {made.schedule} is steady on every stage"),
        ("global batch", str(made.global_batch), f"micro-batches · mbs {made.mbs} · dp {made.dp} · ep {made.ep}"),
        ("steps", steps, "warm-up + profiled"),
        ("ranks to trace", ranks_text(made.ranks), made.ranks_why),
        ("events", f"{made.events_per_rank} per rank", f"{made.layers} layers over pp = {made.pp}"),
        ("largest file", show_size(made.export_bytes), f"budget {show_size(made.max_size)}"),
        ("all files", show_size(made.total_bytes), "reports and exports" if backend == "nsys" else "traces"),
    ]
    if asked.model:
        table.append(_memory(made, asked.model, precision, zero, recompute))
    cells = [dict(zip(("what", "value", "why"), row, strict=True)) for row in table]
    summary = {"plan": made.as_dict()} if target.format == "json" else {}
    target.write(Result(rows(Row, cells), summary=summary, command="capture plan", ranks=made.world))


def _memory(made: Plan, named: str, precision: str, zero: int | None, recompute: bool) -> tuple[str, str, str]:
    """What a rank needs, by the declared model."""
    from stepscope.derive.memory.estimate import Job, estimate

    model = replace(declared.load(named), layers=made.layers)
    stage = zero if zero is not None else 3 if made.schedule == "fsdp" and made.dp > 1 else 0
    job = Job(
        model, made.seq, made.mbs, precision, "adamw", recompute, stage, True,
        made.dp, made.tp, made.pp, made.cp, made.ep, made.pp + _MORE_IN_FLIGHT.get(made.schedule, 0),
    )  # fmt: skip
    try:
        estimated = estimate(job)
    except BadInput as reason:
        return "memory a rank", "unknown", str(reason)
    name, most = max(estimated.peak.parts().items(), key=lambda part: part[1])
    return "memory a rank", size(estimated.size), f"estimated, in {estimated.peak.when}: {name} {size(most)}"


command = command_of(_plan)

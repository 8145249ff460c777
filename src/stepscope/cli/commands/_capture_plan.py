"""`capture plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from stepscope.capture.plan import Plan
from stepscope.capture.size import show_size
from stepscope.cli.commands._capture_options import plan_options, planned
from stepscope.cli.output import Target
from stepscope.errors import BadInput
from stepscope.model import declared
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Col, Result, rows
from stepscope.model.units import size
from stepscope.render import FORMATS

COLUMNS = (Col("what", "part of the plan"), Col("value", "its value"), Col("why", "where it comes from"))

DESCRIPTION = """World size, nodes, batch, steps and size of a capture, before it is run.

Nothing is adjusted silently: what does not fit is an error with the numbers and the alternatives, exit status 2. Sizes
come from a model of the events of a step; expect a factor of two either way. With --model the plan says how much
memory a rank needs, as `stepscope memory --model` estimates it."""

#: Micro-batches whose activations the first stage of a schedule holds, beyond one for each stage.
_MORE_IN_FLIGHT = {"dualpipev": 1}


def _plan(**given: Any) -> None:
    target = Target.of(given["output"], given["format"])
    made = planned(given, given["backend"])
    mesh = " ".join(f"{a}={getattr(made, a)}" for a in ("pp", "dp", "cp", "ep", "tp"))
    steps = f"{made.warmup} + {made.steps}"
    table = [
        ("world", f"{made.world} ranks", mesh),
        ("nodes", f"{made.nodes} of {made.gpus_per_node} GPUs", f"{made.ranks_per_node} ranks on each"),
        ("micro-batches", str(made.micro_batches), f"the median chunk of {made.schedule} is steady on every stage"),
        ("global batch", str(made.global_batch), f"micro-batches · mbs {made.mbs} · dp {made.dp} · ep {made.ep}"),
        ("steps", steps, "warm-up + profiled"),
        ("ranks to trace", ranks_text(made.ranks), made.ranks_why),
        ("events", f"{made.events_per_rank} per rank", f"{made.layers} layers over pp = {made.pp}"),
        ("largest file", show_size(made.export_bytes), f"budget {show_size(made.max_size)}"),
        ("all files", show_size(made.total_bytes), "reports and exports" if given["backend"] == "nsys" else "traces"),
    ]
    memory = _memory(made, given)
    if memory is not None:
        table.append(memory)
    cells = [dict(zip(("what", "value", "why"), row, strict=True)) for row in table]
    summary = {"plan": made.as_dict()} if target.format == "json" else {}
    target.write(Result(rows(COLUMNS, cells), summary=summary, command="capture plan", ranks=made.world))


def _memory(made: Plan, given: dict[str, Any]) -> tuple[str, str, str] | None:
    """What a rank needs, by the declared model."""
    if not given["model"]:
        return None
    from stepscope.derive.memory.estimate import Job, estimate

    model = replace(declared.load(given["model"]), layers=made.layers)
    zero = given["zero"] if given["zero"] is not None else 3 if made.schedule == "fsdp" and made.dp > 1 else 0
    job = Job(
        model, made.seq, made.mbs, given["precision"], "adamw", given["recompute"], zero, True,
        made.dp, made.tp, made.pp, made.cp, made.ep, made.pp + _MORE_IN_FLIGHT.get(made.schedule, 0),
    )  # fmt: skip
    try:
        found = estimate(job)
    except BadInput as reason:
        return "memory a rank", "unknown", str(reason)
    name, most = max(found.peak.parts().items(), key=lambda part: part[1])
    return "memory a rank", size(found.size), f"estimated, in {found.peak.when}: {name} {size(most)}"


command = click.Command(
    "plan",
    callback=_plan,
    help=DESCRIPTION,
    params=[
        *plan_options(),
        click.Option(
            ["--precision"], type=click.Choice(["bf16", "autocast", "mixed"]), default="bf16", help="For the memory."
        ),
        click.Option(["--zero"], type=click.IntRange(0, 3), help="ZeRO stage, for the memory; fsdp is 3."),
        click.Option(["--recompute"], is_flag=True, help="Layers keep their input only, for the memory."),
        click.Option(["--backend"], type=click.Choice(["nsys", "torch"]), default="nsys", help="Profiler."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the answer."),
        click.Option(["-o", "--output"], metavar="FILE", help="File to write the plan to."),
    ],
    context_settings={"show_default": True},
)

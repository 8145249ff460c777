"""`capture plan`."""

from __future__ import annotations

from typing import Any

import click

from stepscope.capture.size import show_size
from stepscope.cli.commands._capture_options import plan_options, planned
from stepscope.cli.output import Target
from stepscope.model.ranks import ranks_text
from stepscope.model.result import Col, Result, rows
from stepscope.render import FORMATS

COLUMNS = (Col("what", "part of the plan"), Col("value", "its value"), Col("why", "where it comes from"))

DESCRIPTION = """World size, nodes, batch, steps and size of a capture, before it is run.

Nothing is adjusted silently: what does not fit is an error with the numbers and the alternatives, exit status 2. Sizes
come from a model of the events of a step; expect a factor of two either way."""


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
    cells = [dict(zip(("what", "value", "why"), row, strict=True)) for row in table]
    summary = {"plan": made.as_dict()} if target.format == "json" else {}
    target.write(Result(rows(COLUMNS, cells), summary=summary, command="capture plan", ranks=made.world))


command = click.Command(
    "plan",
    callback=_plan,
    help=DESCRIPTION,
    params=[
        *plan_options(),
        click.Option(["--backend"], type=click.Choice(["nsys", "torch"]), default="nsys", help="Profiler."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the answer."),
        click.Option(["-o", "--output"], metavar="FILE", help="File to write the plan to."),
    ],
    context_settings={"show_default": True},
)

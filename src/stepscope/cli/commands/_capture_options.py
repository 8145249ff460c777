"""Options that several commands of `capture` share, and what they make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stepscope.capture import size
from stepscope.capture.plan import Plan, Request, plan
from stepscope.capture.schedule import SCHEDULES
from stepscope.capture.spec import TRIGGERS
from stepscope.model import declared
from stepscope.model.capturing import WANTS

_PLAN = ("pp", "ep", "cp", "tp", "dp", "world", "seq", "mbs", "layers", "schedule", "gpus_per_node", "gpus", "nodes",
         "micro_batches", "warmup", "steps")  # fmt: skip


def plan_options() -> list[click.Parameter]:
    """The mesh, the model and the machine."""
    axes = {"pp": "Pipeline stages.", "ep": "Expert-parallel ranks.", "cp": "Context-parallel ranks.",
            "tp": "Tensor-parallel ranks."}  # fmt: skip
    return [
        *(click.Option([f"--{axis}"], type=int, default=1, help=text) for axis, text in axes.items()),
        click.Option(["--dp"], type=int, help="Data-parallel replicas; as few as possible by default."),
        click.Option(["--world"], type=int, help="Ranks in total; by default as many as the axes need."),
        click.Option(
            ["--model"],
            metavar="NAME|FILE",
            help="Shape of a model: a preset (llama-3.1-8b; a name that is not known lists all), a TOML file, or "
            "layers=32,width=4096,…",
        ),
        click.Option(["--layers"], type=int, help="Layers; by default the model's."),
        click.Option(["--seq"], type=int, default=4096, help="Sequence length."),
        click.Option(["--mbs"], type=int, default=1, help="Size of a micro-batch."),
        click.Option(["--schedule"], type=click.Choice(SCHEDULES), default="dualpipev", help="Pipeline schedule."),
        click.Option(["--micro-batches"], type=int, help="By default as few as reach the steady state."),
        click.Option(["--gpus-per-node"], type=int, default=8, help="GPUs of a node."),
        click.Option(["--gpus"], type=int, help="GPUs available."),
        click.Option(["--nodes"], type=int, help="Nodes available."),
        *step_options(),
    ]


def step_options() -> list[click.Parameter]:
    return [
        click.Option(["--warmup"], type=int, default=5, help="Steps before the profiled ones."),
        click.Option(["--steps"], type=int, default=1, help="Steps to profile."),
        click.Option(["--max-size"], default="200MB", metavar="SIZE", help="Budget of one file."),
    ]


def planned(given: dict[str, Any], backend: str) -> Plan:
    """The plan that the options ask for."""
    model = declared.load(given["model"]) if given.get("model") else None
    fields = {k: given[k] for k in _PLAN if k in given}
    return plan(Request(model=model, backend=backend, max_size=size.parse_size(given["max_size"]), **fields))


def backends(text: str) -> tuple[str, ...]:
    """`both` is one after the other."""
    return ("nsys", "torch") if text == "both" else (text,)


def with_option() -> click.Option:
    help_ = f"What to record beyond the usual: {', '.join(WANTS)}."
    return click.Option(["--with", "wants"], multiple=True, metavar="WHAT,...", help=help_)


def run_options() -> list[click.Parameter]:
    """How to launch, for `run` and `doctor`."""
    return [
        click.Option(["--backend"], type=click.Choice(["nsys", "torch", "both"]), default="nsys", help="Profiler."),
        click.Option(["--nsys"], default="nsys", metavar="PATH", help="The nsys to use."),
        click.Option(
            ["--trigger"],
            metavar=TRIGGERS,
            default="cuda",
            help="What starts nsys: steps (nvtx: where there is no GPU); without torch a range, a time, or the start.",
        ),
        click.Option(
            ["--nproc"], type=int, default=0, help="Start the command with torchrun, with so many ranks per node."
        ),
        click.Option(["--share-gpu"], is_flag=True, help="Ranks may share a GPU."),
        click.Option(
            ["--port"], type=click.IntRange(0, 65535), default=29500, metavar="N", help="Rendezvous port, with --nproc."
        ),
        click.Option(
            ["--input", "inputs"],
            multiple=True,
            type=click.Path(path_type=Path),
            help="A file that the command reads; may be repeated.",
        ),
        click.Option(
            ["-o", "--output"], metavar="DIR", help="Folder for the capture; by default stepscope-capture-TIME."
        ),
    ]

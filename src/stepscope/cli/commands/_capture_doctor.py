"""`capture doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stepscope.capture import doctor, slurm, wants
from stepscope.capture.size import parse_size
from stepscope.capture.spec import Spec
from stepscope.cli.commands._capture_options import backends, run_options, with_option
from stepscope.cli.output import Target
from stepscope.errors import GateFailed
from stepscope.model.note import Note
from stepscope.model.result import Col, Result, rows
from stepscope.render import FORMATS

COLUMNS = (
    Col("node", "host that was looked at"),
    Col("check", "what was checked"),
    Col("status", "ok, warning or missing"),
    Col("found", "what there is"),
    Col("needed", "what there must be"),
    Col("fix", "what to do"),
)

DESCRIPTION = """What is missing before a capture can start, on every node of the allocation.

With a COMMAND, its Python is asked whether it imports what the capture needs. Inside a SLURM allocation the checks run
on each of its nodes, by srun. Exit status 1 where something is missing."""


def _doctor(command: tuple[str, ...], **given: Any) -> None:
    here = given.pop("here")
    target = Target.of(None, given.pop("format"))
    spec = Spec(
        command or ("true",), Path(given["output"] or "stepscope-capture"), backends(given["backend"]),
        trigger=given["trigger"],
        nproc=given["nproc"], nsys=given["nsys"], port=given["port"], inputs=tuple(given["inputs"]),
        max_size=parse_size(given["max_size"]), share_gpu=given["share_gpu"],
        wants=wants.parse(given["wants"]),
    )  # fmt: skip
    job = None if here else slurm.allocation()
    notes = []
    if job is None:
        found = [c.row() for c in doctor.examine(spec, given["gpus"], _python(command))]
    else:
        left = "no limit" if job.left_s is None else f"{job.left_s / 60:.0f} min left"
        notes.append(Note("slurm-allocation", f"SLURM job {job.job}: {job.nodes} nodes, {left}"))
        found = [c.row() for c in doctor.examine_nodes(spec, job, given["gpus"])]
    missing = [f for f in found if f["status"] == "missing"]
    result = Result(rows(COLUMNS, found), notes=notes, command="capture doctor")
    result.summary = {"missing": len(missing), "nodes": len({f["node"] for f in found})}
    target.write(result)
    if missing:
        first = missing[0]
        raise GateFailed(f"{len(missing)} missing: {first['check']} on {first['node']}: {first['found']}", first["fix"])


def _python(command: tuple[str, ...]) -> str | None:
    """The Python of a command, where it names one."""
    return next((word for word in command if Path(word).name.startswith("python")), None)


command = click.Command(
    "doctor",
    callback=_doctor,
    help=DESCRIPTION,
    params=[
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND..."),
        *run_options(),
        with_option(),
        click.Option(["--gpus"], type=int, help="GPUs that each node must have."),
        click.Option(["--max-size"], default="200MB", metavar="SIZE", help="Budget of one file."),
        click.Option(["--here"], is_flag=True, help="Only this node, also inside an allocation."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the answer."),
    ],
    context_settings={"show_default": True},
)

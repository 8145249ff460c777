"""`capture doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from stepscope.capture import doctor, slurm
from stepscope.capture.size import parse_size
from stepscope.capture.spec import Spec
from stepscope.cli.commands._capture_options import backends, run_options
from stepscope.cli.output import Target
from stepscope.errors import BadInput, GateFailed
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

Inside a SLURM allocation the checks run on each of its nodes, by srun. Exit status 1 where something is missing."""


def _doctor(**given: Any) -> None:
    here = given.pop("here")
    target = Target.of(None, given.pop("format"))
    spec = Spec(
        ("true",), Path(given["output"] or "stepscope-capture"), backends(given["backend"]), trigger=given["trigger"],
        nproc=given["nproc"], nsys=given["nsys"], port=given["port"], inputs=tuple(given["inputs"]),
        max_size=parse_size(given["max_size"]), share_gpu=given["share_gpu"],
    )  # fmt: skip
    job = None if here else slurm.allocation()
    notes = []
    if job is None:
        found = [c.row() for c in doctor.examine(spec, given["gpus"])]
    else:
        left = "no limit" if job.left_s is None else f"{job.left_s / 60:.0f} min left"
        notes.append(f"SLURM job {job.job}: {job.nodes} nodes, {left}")
        found = _everywhere(job)
    missing = [f for f in found if f["status"] == "missing"]
    result = Result(rows(COLUMNS, found), notes=notes, command="capture doctor")
    result.summary = {"missing": len(missing), "nodes": len({f["node"] for f in found})}
    target.write(result)
    if missing:
        first = missing[0]
        raise GateFailed(f"{len(missing)} missing: {first['check']} on {first['node']}: {first['found']}", first["fix"])


def _everywhere(job: slurm.Allocation) -> list[dict[str, Any]]:
    """The same command on every node."""
    again = [a for a in sys.argv[1:] if a not in ("--here",)]
    command = [sys.executable, "-m", "stepscope", *again, "--here", "--format", "json"]
    each = ["srun", f"--nodes={job.nodes}", "--ntasks-per-node=1", *command]
    done = subprocess.run(each, capture_output=True, text=True, errors="replace", check=False)
    found: list[dict[str, Any]] = []
    decoder, text = json.JSONDecoder(), done.stdout.strip()
    while text:  # one object after the other, one for each node
        try:
            answer, end = decoder.raw_decode(text)
        except ValueError:
            break
        found += answer["rows"]
        text = text[end:].lstrip()
    if len({f["node"] for f in found}) == 0:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise BadInput(f"srun could not look at the nodes: {reason}", "is stepscope installed on all of them?")
    return found


command = click.Command(
    "doctor",
    callback=_doctor,
    help=DESCRIPTION,
    params=[
        *run_options(),
        click.Option(["--gpus"], type=int, help="GPUs that each node must have."),
        click.Option(["--max-size"], default="200MB", metavar="SIZE", help="Budget of one file."),
        click.Option(["--here"], is_flag=True, help="Only this node, also inside an allocation."),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the answer."),
    ],
    context_settings={"show_default": True},
)

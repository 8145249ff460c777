"""What is missing before a capture can start, on every node of the allocation.

With a COMMAND, its Python is asked whether it imports what the capture needs. Inside a SLURM allocation the checks run
on each of its nodes, by srun. Exit status 1 where something is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict

from stepscope.capture import doctor, slurm
from stepscope.capture.size import parse_size
from stepscope.capture.spec import Spec
from stepscope.capture.wants import parse as parse_wants
from stepscope.cli.commands._capture_options import Launch, Wants, backends
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import AnyFormat, MaxSize, Words
from stepscope.errors import GateFailed
from stepscope.model.note import noted
from stepscope.model.result import Result, rows


class Row(TypedDict):
    node: Annotated[str, "host that was looked at"]
    check: Annotated[str, "what was checked"]
    status: Annotated[str, "ok, warning or missing"]
    found: Annotated[str, "what there is"]
    needed: Annotated[str, "what there must be"]
    fix: Annotated[str, "what to do"]


def _doctor(
    command: Words,
    *,
    launch: Launch,
    wants: Wants = (),
    gpus: Annotated[int | None, "GPUs that each node must have."] = None,
    max_size: MaxSize = "200MB",
    here: Annotated[bool, "Only this node, also inside an allocation."] = False,
    format: AnyFormat = None,
) -> None:
    target = Target.of(None, format)
    spec = Spec(
        command or ("true",),
        Path(launch.output or "stepscope-capture"),
        backends(launch.backend),
        trigger=launch.trigger,
        nproc=launch.nproc,
        nsys=launch.nsys,
        port=launch.port,
        inputs=launch.inputs,
        max_size=parse_size(max_size),
        share_gpu=launch.share_gpu,
        wants=parse_wants(wants),
    )
    job = None if here else slurm.allocation()
    notes = []
    if job is None:
        table = [c.row() for c in doctor.examine(spec, gpus, _python(command))]
    else:
        left = "no limit" if job.left_s is None else f"{job.left_s / 60:.0f} min left"
        notes.append(noted("slurm-allocation", job=job.job, nodes=job.nodes, left=left))
        table = [c.row() for c in doctor.examine_nodes(spec, job, gpus)]
    missing = [row for row in table if row["status"] == "missing"]
    result = Result(rows(Row, table), notes=notes, command="capture doctor")
    result.summary = {"missing": len(missing), "nodes": len({row["node"] for row in table})}
    target.write(result)
    if missing:
        first = missing[0]
        raise GateFailed(f"{len(missing)} missing: {first['check']} on {first['node']}: {first['found']}", first["fix"])


def _python(command: tuple[str, ...]) -> str | None:
    """The Python of a command, where it names one."""
    return next((word for word in command if Path(word).name.startswith("python")), None)


command = command_of(_doctor)

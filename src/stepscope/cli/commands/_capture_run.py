"""`capture run`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from stepscope.capture import doctor, pithtrain, run, slurm, wants
from stepscope.capture.nsys import Nsys
from stepscope.capture.size import parse_size, show_size
from stepscope.capture.spec import RANGES, Spec
from stepscope.cli import progress
from stepscope.cli.commands._capture_options import backends, plan_options, planned, run_options
from stepscope.cli.output import Target
from stepscope.errors import BadInput, GateFailed
from stepscope.model.capturing import WANTS

DESCRIPTION = """Run a training command under nsys or torch.profiler; export and verify what comes of it.

COMMAND calls `stepscope.annotate` (docs/capture.md): the profiler then starts and stops at the right steps, on all
ranks together. Inside a SLURM allocation it is started on every node by srun, after `capture doctor` has looked at
each. Nothing is left behind by a run that fails."""


def _spec(given: dict[str, Any], command: tuple[str, ...]) -> Spec:
    time = datetime.now().strftime("%Y%m%d-%H%M%S")
    chosen = backends(given["backend"])
    planned_ranks = traced = None
    nproc = given["nproc"]
    if given["model"] or given["layers"]:
        plans = [planned(given, backend) for backend in chosen]
        made = plans[0]
        planned_ranks = made.world
        traced = plans[-1].ranks if len(plans[-1].ranks) < made.world else None
        nproc = nproc or made.ranks_per_node
    spec = Spec(
        command=command or ("python3",),
        out=Path(given["output"] or f"stepscope-capture-{time}"),
        backends=chosen,
        warmup=given["warmup"],
        steps=given["steps"],
        per=given["per"],
        trigger=given["trigger"],
        ranges=given["ranges"],
        hooks=given["preset"] is None,
        wants=wants.parse(given["wants"]),
        nsys_args=tuple(shlex.split(given["nsys_args"] or "")),
        torch_args=wants.parse_torch(given["torch_args"]),
        nproc=nproc,
        world=given["world"] or planned_ranks,
        ranks=traced,
        share_gpu=given["share_gpu"],
        nsys=given["nsys"],
        trace=given["trace"] or ("nvtx,osrt" if given["trigger"] == "nvtx" else "cuda,nvtx"),
        port=given["port"],
        grace_s=given["grace"],
        need_s=60.0 * given["need_time"],
        max_size=parse_size(given["max_size"]),
        inputs=tuple(given["inputs"]),
    )
    if given["preset"] is None:
        if not command:
            raise BadInput("no command to run", "write it after --, as in capture run -- torchrun train.py")
        return spec
    if not given["model"] or given["pithtrain"] is None:
        raise BadInput("--preset pithtrain needs --model and --pithtrain DIR", "see docs/capture.md")
    if chosen != ("nsys",):
        raise BadInput("--preset pithtrain: its trainer starts nsys only", "give --backend nsys")
    ready = pithtrain.prepare(given["pithtrain"].absolute(), given["model"], made, given["checkpoint"], given["corpus"])
    return replace(
        spec,
        command=("python3", "{out}/pithtrain_capture.py"),
        scripts={"pithtrain_capture.py": ready.script},
        cwd=ready.root,
        inputs=(*spec.inputs, *ready.inputs),
        out=spec.out.absolute(),
    )


def _run(command: tuple[str, ...], **given: Any) -> None:
    spec = _spec(given, command)
    job = slurm.allocation()
    if job is not None:
        ranks = spec.nproc or None
        nodes = -(-spec.world // ranks) if spec.world and ranks else None
        slurm.require(job, nodes, spec.need_s * len(spec.backends))
    if spec.wants:
        wants.refuse(spec.wants, spec.backends, Nsys.there(spec.nsys), spec.by_steps)
    if given["dry_run"]:
        for launch in run.launches(spec, job):
            click.echo(launch.text())
        return
    if given["doctor"]:
        doctor.require(doctor.examine(spec) if job is None else doctor.examine_nodes(spec, job))
    with progress.shown():
        made = run.capture(spec, job, _export)
    for one in made:
        for file in one.files:
            click.echo(f"{file}  {show_size(file.stat().st_size)}")
        if status := one.manifest["captured"]["exit_status"]:
            click.echo(
                f"note: the command failed with status {status} after the capture: {one.folder}/log.txt", err=True
            )
    if given["verify"]:
        _verify([str(one.folder) for one in made], given["max_size"])


def _export(report: Path, folder: Path, nsys: str) -> Path:
    from stepscope.sources.nsys.report import export_report

    return export_report(report, folder, nsys)


def _verify(folders: list[str], max_size: str) -> None:
    """Each backend's capture by itself; the first that is no good is the exit status."""
    from stepscope.cli.commands._capture_verify import check

    failure: GateFailed | None = None
    for folder in folders:
        try:
            Target.of(None, None).write(check([folder], max_size=max_size))
        except GateFailed as failed:
            Target.of(None, None).write(failed.result)
            failure = failure or failed
    sys.stdout.flush()
    if failure is not None:
        raise failure


command = click.Command(
    "run",
    callback=_run,
    help=DESCRIPTION,
    params=[
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND..."),
        *run_options(),
        click.Option(["--per"], type=click.Choice(["node", "rank"]), default="node", help="One nsys report for each."),
        click.Option(
            ["--ranges"],
            metavar=RANGES,
            default="phases",
            help="Ranges in programs that mark none: data, forward, backward, optimizer; modules too; or none.",
        ),
        click.Option(
            ["--with", "wants"],
            multiple=True,
            metavar="WHAT,...",
            help=f"What to record beyond the usual: {', '.join(WANTS)}.",
        ),
        click.Option(["--nsys-args"], metavar="OPTIONS", help="Further options of nsys profile."),
        click.Option(["--torch-args"], metavar="NAME,...", help="Further keywords of torch.profiler.profile."),
        click.Option(["--trace"], metavar="LIST", help="What nsys traces; by default cuda,nvtx."),
        click.Option(
            ["--grace"], type=float, default=120.0, help="Seconds that the command may go on after the capture."
        ),
        click.Option(
            ["--need-time"], type=float, default=10.0, metavar="MINUTES", help="Time that one run needs (SLURM)."
        ),
        click.Option(["--dry-run"], is_flag=True, help="Print the exact commands, and run nothing."),
        click.Option(["--doctor/--no-doctor"], default=True, help="Check every node first."),
        click.Option(["--verify/--no-verify"], default=True, help="Check the capture afterwards."),
        *plan_options(),
        click.Option(["--preset"], type=click.Choice(["pithtrain"]), help="A trainer that needs no COMMAND."),
        click.Option(["--pithtrain"], type=click.Path(path_type=Path), metavar="DIR", help="A clone of PithTrain."),
        click.Option(["--checkpoint"], type=click.Path(path_type=Path), help="The preset's checkpoint."),
        click.Option(["--corpus"], type=click.Path(path_type=Path), help="The preset's tokenized corpus."),
    ],
    context_settings={"show_default": True},
)

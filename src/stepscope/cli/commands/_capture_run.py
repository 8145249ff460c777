"""Run a training command under nsys or torch.profiler; export and verify the result.

COMMAND needs no change: its training steps are found by its optimizers, and the profiler starts and stops at the right
ones, on all ranks together (docs/capture.md). Inside a SLURM allocation it is started on every node by srun, after
`capture doctor` has looked at each. The plan is shown before anything starts. If the run fails, log.txt is kept.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import click

from stepscope.capture import doctor, manifest, pithtrain, run, slurm, wants, world
from stepscope.capture.nsys import Nsys
from stepscope.capture.plan import Plan
from stepscope.capture.size import parse_size
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import RANGES, Spec
from stepscope.cli import progress
from stepscope.cli.commands._capture_options import Launch, Mesh, Wants, backends
from stepscope.cli.commands._capture_summary import summary
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import Words, by_user
from stepscope.errors import BadInput, GateFailed, StepscopeError
from stepscope.model.option import Shell
from stepscope.model.result import Result
from stepscope.model.times import nanoseconds


class Recording(NamedTuple):
    """What is recorded, and for how long."""

    every: Annotated[
        int,
        "Record --steps again every N steps of the run, as far as all fit into --max-size; 0: only once.",
        Shell(metavar="N"),
    ] = 0
    per: Annotated[Literal["node", "rank"], "One nsys report for each."] = "node"
    ranges: Annotated[
        str,
        "Ranges for programs that mark none: data, forward, backward and optimizer (phases), modules as well, or none.",
        Shell(metavar=RANGES),
    ] = "phases"
    wants: Wants = ()
    nsys_args: Annotated[str | None, "Additional options for nsys profile.", Shell(metavar="OPTIONS")] = None
    torch_args: Annotated[str | None, "Additional keywords for torch.profiler.", Shell(metavar="NAME,...")] = None
    trace: Annotated[str | None, "What nsys traces; by default cuda,nvtx.", Shell(metavar="LIST")] = None
    grace: Annotated[str, "How long the command may keep running after the capture.", Shell(metavar="TIME")] = "120s"
    need_time: Annotated[str, "Time that one run needs, of the SLURM allocation.", Shell(metavar="TIME")] = "10m"
    tags: Annotated[
        tuple[str, ...], "Name the experiment; may be repeated.", Shell(flags=("--tag",), metavar="KEY=VALUE")
    ] = ()


class Preset(NamedTuple):
    """A trainer that is started by a script of ours."""

    preset: Annotated[Literal["pithtrain"] | None, "Start this trainer; no COMMAND is needed."] = None
    pithtrain: Annotated[Path | None, "A clone of PithTrain.", Shell(metavar="DIR")] = None
    checkpoint: Annotated[Path | None, "The preset's checkpoint."] = None
    corpus: Annotated[Path | None, "The preset's tokenized corpus."] = None


#: Steps for a gate where nothing is known of their noise.
_GATE_STEPS = 20


def _steps_for_gate(for_gate: str, named: str | None) -> int:
    """Steps by which the gate can decide: by the noise of the baseline, where there is one."""
    from stepscope.compare import baseline
    from stepscope.compare.gate import percentage
    from stepscope.compare.resolution import steps_needed

    if by_user("steps"):
        raise BadInput("--for-gate and --steps both say how many steps", "give one of them")
    limit = percentage("--for-gate", for_gate)
    if named is None:
        click.echo(
            f"{_GATE_STEPS} steps: their noise is not known yet; `gate --save` will say what they can tell apart, "
            "and with --baseline NAME as many as needed are taken\n"
        )
        return _GATE_STEPS
    file = baseline.path_of(named)
    side, _ = baseline.load(file)
    steps = steps_needed(side, limit) if limit else None
    if steps is None:
        raise BadInput(
            f"--for-gate {limit:g}: {side.said}: too few to tell such a change from noise, however long the new run",
            "save one of more steps or runs, or give a larger limit",
        )
    click.echo(f"{steps} steps: by {side.said}, they tell a change of {limit:g} % from noise\n")
    return steps


def _spec(
    command: tuple[str, ...], launch: Launch, recording: Recording, mesh: Mesh, preset: Preset
) -> tuple[Spec, Plan | None]:
    time = datetime.now().strftime("%Y%m%d-%H%M%S")
    chosen = backends(launch.backend)
    made = traced = None
    if preset.preset is not None:
        mesh = _of_preset(mesh, preset, chosen)
    if mesh.model or mesh.layers:
        plans = [mesh.plan(backend) for backend in chosen]
        made = plans[0]
        traced = plans[-1].ranks if len(plans[-1].ranks) < made.world else None
    spec = Spec(
        command=command or ("python3",),
        out=Path(launch.output or f"stepscope-capture-{time}"),
        backends=chosen,
        warmup=mesh.warmup,
        steps=mesh.steps,
        every=recording.every,
        per=recording.per,
        trigger=launch.trigger,
        ranges=recording.ranges,
        hooks=preset.preset is None,
        wants=wants.parse(recording.wants),
        nsys_args=tuple(shlex.split(recording.nsys_args or "")),
        torch_args=wants.parse_torch(recording.torch_args),
        nproc=launch.nproc,
        ranks=traced,
        share_gpu=launch.share_gpu,
        nsys=launch.nsys,
        trace=recording.trace or ("nvtx,osrt" if launch.trigger == "nvtx" else "cuda,nvtx"),
        port=launch.port,
        grace_s=nanoseconds(recording.grace, "--grace", "s") / 1e9,
        need_s=nanoseconds(recording.need_time, "--need-time", "m") / 1e9,
        max_size=parse_size(mesh.max_size),
        inputs=launch.inputs,
        tags=_tags(recording.tags),
    )
    if preset.preset is None:
        if not command:
            raise BadInput("no command to run", "write it after --, as in capture run -- torchrun train.py")
        return spec, made
    assert made is not None and preset.pithtrain is not None and mesh.model is not None  # a preset has both
    ready = pithtrain.prepare(preset.pithtrain.absolute(), mesh.model, made, preset.checkpoint, preset.corpus)
    spec = replace(
        spec,
        command=("python3", "{out}/pithtrain_capture.py"),
        scripts={"pithtrain_capture.py": ready.script},
        cwd=ready.root,
        inputs=(*spec.inputs, *ready.inputs),
        out=spec.out.absolute(),
    )
    return spec, made


def _tags(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for text in texts:
        if not re.fullmatch(r"[\w.-]+=.+", text):
            raise BadInput(f"--tag {text}: not KEY=VALUE", "as in --tag change=fused-adam")
    return tuple((key, value) for key, _, value in (text.partition("=") for text in texts))


def _of_preset(mesh: Mesh, preset: Preset, chosen: tuple[str, ...]) -> Mesh:
    """The mesh of the preset; refused where it cannot be run."""
    if not mesh.model or preset.pithtrain is None:
        raise BadInput("--preset pithtrain needs --model and --pithtrain DIR", "see docs/capture.md")
    if chosen != ("nsys",):
        raise BadInput("--preset pithtrain: its trainer starts nsys only", "give --backend nsys")
    return mesh.of_preset()


def _run(
    command: Words,
    *,
    launch: Launch,
    recording: Recording,
    for_gate: Annotated[
        str | None,
        "Record enough steps for `gate` to decide a limit of PERCENT of the step; see --baseline.",
        Shell(metavar="PERCENT"),
    ] = None,
    baseline: Annotated[
        str | None, "For --for-gate: the baseline whose noise decides how many.", Shell(metavar="NAME|FILE")
    ] = None,
    yes: Annotated[bool, "Do not ask for confirmation (never asked when not on a terminal)."] = False,
    quiet: Annotated[bool, "Do not show the output of the command; log.txt has it."] = False,
    dry_run: Annotated[bool, "Print the exact commands, and run nothing."] = False,
    check_nodes: Annotated[bool, "Check every node first.", Shell(flags=("--doctor/--no-doctor",))] = True,
    verify: Annotated[bool, "Check the capture afterwards."] = True,
    mesh: Mesh,
    preset: Preset,
) -> None:
    if for_gate is not None:
        mesh = mesh._replace(steps=_steps_for_gate(for_gate, baseline))
    elif baseline is not None:
        raise BadInput("--baseline gives the noise for --for-gate", "also give the limit: --for-gate PERCENT")
    spec, made = _spec(command, launch, recording, mesh, preset)
    axes = {axis: getattr(mesh, axis) for axis in world.SAID}
    asked = world.Asked(axes, mesh.dp, mesh.world, mesh.nodes if by_user("nodes") else None)
    job = slurm.allocation()
    if job is not None:
        slurm.require(job, None, spec.need_s * len(spec.backends))
    spec, job = world.fit(spec, asked, made, job)
    if spec.wants:
        wants.refuse(spec.wants, spec.backends, Nsys.there(spec.nsys), spec.by_steps)
    if dry_run:
        for started in run.launches(spec, job):
            click.echo(started.text())
        return
    if check_nodes:
        doctor.require(doctor.examine(spec) if job is None else doctor.examine_nodes(spec, job))
    run.check_output(spec)
    click.echo("\n".join(world.lines(spec, made, job)) + "\n")
    if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not click.confirm("go on?", default=True):
        return
    spec = replace(spec, told=tuple(sorted(manifest.VARIABLES)))
    done = _captured(spec, job, quiet)
    summary(done, _verify([str(one.folder) for one in done], mesh.max_size) if verify else None)


def _captured(spec: Spec, job: Allocation | None, quiet: bool) -> list[run.Captured]:
    try:
        with progress.shown():
            return run.capture(spec, job, _export, show=None if quiet else progress.echo)
    except StepscopeError:
        if quiet and (last := run.last_lines(spec)):
            click.echo("\n".join(last), err=True)
        raise


def _export(report: Path, folder: Path, nsys: str) -> Path:
    from stepscope.sources.nsys.report import export_report

    return export_report(report, folder, nsys)


def _verify(folders: list[str], max_size: str) -> list[Result | GateFailed]:
    """Each backend's capture by itself."""
    from stepscope.cli.commands._capture_verify import check

    results: list[Result | GateFailed] = []
    for folder in folders:
        try:
            results.append(check([folder], max_size=max_size))
        except GateFailed as failed:
            results.append(failed)
        last = results[-1]
        Target.of(None, None).write(last.result if isinstance(last, GateFailed) else last)
    return results


command = command_of(_run)

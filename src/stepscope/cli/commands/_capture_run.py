"""`capture run`."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from stepscope.capture import doctor, manifest, pithtrain, run, slurm, wants, world
from stepscope.capture.nsys import Nsys
from stepscope.capture.plan import Plan
from stepscope.capture.size import parse_size
from stepscope.capture.slurm import Allocation
from stepscope.capture.spec import RANGES, Spec
from stepscope.cli import progress
from stepscope.cli.commands._capture_options import backends, plan_options, planned, run_options, with_option
from stepscope.cli.commands._capture_summary import summary
from stepscope.cli.output import Target
from stepscope.errors import BadInput, GateFailed, StepscopeError
from stepscope.model.result import Result
from stepscope.model.times import nanoseconds

DESCRIPTION = """Run a training command under nsys or torch.profiler; export and verify what comes of it.

COMMAND needs no change: its training steps are found by its optimizers, and the profiler starts and stops at the right
ones, on all ranks together (docs/capture.md). Inside a SLURM allocation it is started on every node by srun, after
`capture doctor` has looked at each. The plan is shown before anything starts. Of a run that fails, log.txt stays."""


#: Steps for a gate where nothing is known of their noise.
_GATE_STEPS = 20


def _given(option: str) -> bool:
    """Whether the user wrote it."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def _steps_for_gate(given: dict[str, Any]) -> int:
    """Steps by which the gate can decide: by the noise of the baseline, where there is one."""
    from stepscope.compare import baseline
    from stepscope.compare.gate import percentage
    from stepscope.compare.resolution import steps_needed

    if _given("steps"):
        raise BadInput("--for-gate and --steps both say how many steps", "give one of them")
    limit = percentage("--for-gate", given["for_gate"])
    if given["baseline"] is None:
        click.echo(
            f"{_GATE_STEPS} steps: their noise is not known yet; `gate --save` will say what they can tell apart, "
            "and with --baseline NAME as many as needed are taken\n"
        )
        return _GATE_STEPS
    file = baseline.path_of(given["baseline"])
    side, _ = baseline.load(file)
    steps = steps_needed(side, limit) if limit else None
    if steps is None:
        raise BadInput(
            f"--for-gate {limit:g}: {side.said}: too few to tell such a change from noise, however long the new run",
            "save one of more steps or runs, or give a larger limit",
        )
    click.echo(f"{steps} steps: by {side.said}, they tell a change of {limit:g} % from noise\n")
    return steps


def _spec(given: dict[str, Any], command: tuple[str, ...]) -> tuple[Spec, Plan | None]:
    time = datetime.now().strftime("%Y%m%d-%H%M%S")
    chosen = backends(given["backend"])
    made = traced = None
    if given["preset"] is not None:
        _check_preset(given, chosen)
    if given["model"] or given["layers"]:
        plans = [planned(given, backend) for backend in chosen]
        made = plans[0]
        traced = plans[-1].ranks if len(plans[-1].ranks) < made.world else None
    spec = Spec(
        command=command or ("python3",),
        out=Path(given["output"] or f"stepscope-capture-{time}"),
        backends=chosen,
        warmup=given["warmup"],
        steps=given["steps"],
        every=given["every"],
        per=given["per"],
        trigger=given["trigger"],
        ranges=given["ranges"],
        hooks=given["preset"] is None,
        wants=wants.parse(given["wants"]),
        nsys_args=tuple(shlex.split(given["nsys_args"] or "")),
        torch_args=wants.parse_torch(given["torch_args"]),
        nproc=given["nproc"],
        ranks=traced,
        share_gpu=given["share_gpu"],
        nsys=given["nsys"],
        trace=given["trace"] or ("nvtx,osrt" if given["trigger"] == "nvtx" else "cuda,nvtx"),
        port=given["port"],
        grace_s=nanoseconds(given["grace"], "--grace", "s") / 1e9,
        need_s=nanoseconds(given["need_time"], "--need-time", "m") / 1e9,
        max_size=parse_size(given["max_size"]),
        inputs=tuple(given["inputs"]),
        tags=_tags(given["tags"]),
    )
    if given["preset"] is None:
        if not command:
            raise BadInput("no command to run", "write it after --, as in capture run -- torchrun train.py")
        return spec, made
    assert made is not None  # a preset has a model
    ready = pithtrain.prepare(given["pithtrain"].absolute(), given["model"], made, given["checkpoint"], given["corpus"])
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


def _check_preset(given: dict[str, Any], chosen: tuple[str, ...]) -> None:
    """What the preset will not guess; and its own sequence length, where none was given."""
    if not given["model"] or given["pithtrain"] is None:
        raise BadInput("--preset pithtrain needs --model and --pithtrain DIR", "see docs/capture.md")
    if chosen != ("nsys",):
        raise BadInput("--preset pithtrain: its trainer starts nsys only", "give --backend nsys")
    unsaid = [axis for axis in ("pp", "ep") if not _given(axis)]
    if unsaid:
        raise BadInput(
            f"--preset pithtrain: no --{' and no --'.join(unsaid)}, and it does not guess the mesh",
            "give both, as in --pp 2 --ep 8; 1 for none",
        )
    if not _given("seq"):
        given["seq"] = pithtrain.SEQ


def _run(command: tuple[str, ...], **given: Any) -> None:
    if given["for_gate"] is not None:
        given["steps"] = _steps_for_gate(given)
    elif given["baseline"] is not None:
        raise BadInput("--baseline says the noise for --for-gate", "give --for-gate PERCENT, the limit, too")
    spec, made = _spec(given, command)
    axes = {axis: given[axis] for axis in world.SAID}
    asked = world.Asked(axes, given["dp"], given["world"], given["nodes"] if _given("nodes") else None)
    job = slurm.allocation()
    if job is not None:
        slurm.require(job, None, spec.need_s * len(spec.backends))
    spec, job = world.fit(spec, asked, made, job)
    if spec.wants:
        wants.refuse(spec.wants, spec.backends, Nsys.there(spec.nsys), spec.by_steps)
    if given["dry_run"]:
        for launch in run.launches(spec, job):
            click.echo(launch.text())
        return
    if given["doctor"]:
        doctor.require(doctor.examine(spec) if job is None else doctor.examine_nodes(spec, job))
    run.check_output(spec)
    click.echo("\n".join(world.lines(spec, made, job)) + "\n")
    if not given["yes"] and sys.stdin.isatty() and sys.stdout.isatty() and not click.confirm("go on?", default=True):
        return
    spec = replace(spec, told=tuple(sorted(manifest.VARIABLES)))
    done = _captured(spec, job, given["quiet"])
    summary(done, _verify([str(one.folder) for one in done], given["max_size"]) if given["verify"] else None)


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

    found: list[Result | GateFailed] = []
    for folder in folders:
        try:
            found.append(check([folder], max_size=max_size))
        except GateFailed as failed:
            found.append(failed)
        last = found[-1]
        Target.of(None, None).write(last.result if isinstance(last, GateFailed) else last)
    return found


command = click.Command(
    "run",
    callback=_run,
    help=DESCRIPTION,
    params=[
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND..."),
        *run_options(),
        click.Option(
            ["--every"],
            type=int,
            default=0,
            metavar="N",
            help="Record --steps again every N steps of the run, as long as --max-size lasts for all; 0: once.",
        ),
        click.Option(["--per"], type=click.Choice(["node", "rank"]), default="node", help="One nsys report for each."),
        click.Option(
            ["--ranges"],
            metavar=RANGES,
            default="phases",
            help="Ranges in programs that mark none: data, forward, backward, optimizer; modules too; or none.",
        ),
        with_option(),
        click.Option(["--nsys-args"], metavar="OPTIONS", help="Further options of nsys profile."),
        click.Option(["--torch-args"], metavar="NAME,...", help="Further keywords of torch.profiler.profile."),
        click.Option(["--trace"], metavar="LIST", help="What nsys traces; by default cuda,nvtx."),
        click.Option(
            ["--grace"], default="120s", metavar="TIME", help="How long the command may go on after the capture."
        ),
        click.Option(["--need-time"], default="10m", metavar="TIME", help="Time that one run needs (SLURM)."),
        click.Option(
            ["--tag", "tags"], multiple=True, metavar="KEY=VALUE", help="Name the experiment; may be repeated."
        ),
        click.Option(
            ["--for-gate"],
            metavar="PERCENT",
            help="As many steps as `gate` needs to decide a limit of so many % of the step; see --baseline.",
        ),
        click.Option(
            ["--baseline"], metavar="NAME|FILE", help="For --for-gate: the baseline whose noise says how many."
        ),
        click.Option(["--yes"], is_flag=True, help="Ask nothing; a pipe is not asked either."),
        click.Option(["--quiet"], is_flag=True, help="Do not show what the command says; log.txt has it."),
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

"""`capture ncu`."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import Any

import click

from stepscope.capture import ncu
from stepscope.capture.size import show_size
from stepscope.cli import progress
from stepscope.cli.analysis import labels_option, window_options
from stepscope.cli.memory import memory_option
from stepscope.cli.output import Target
from stepscope.errors import BadInput
from stepscope.model.result import Col, Result, rows
from stepscope.model.statement import STATEMENT, several
from stepscope.model.units import about

COLUMNS = (
    Col("name", "short name"),
    Col("grid", "grid size"),
    Col("block", "block size"),
    Col("launches", "how often the window launches it"),
    Col("total_ns", "how long these take"),
    Col("share_pct", "of the compute of the window"),
    Col("needed", "launches to measure, so that all of its works are seen"),
)

DESCRIPTION = """Measure with Nsight Compute the few kernels that a timeline made suspects.

--from is a profile of the same program (nsys or torch.profiler): the kernels that take most of its step are measured,
and of identical layers (same function, grid and block) one launch. What that costs in passes and time is said first.
COMMAND is the program again; afterwards `stepscope kernels PROFILE REPORT` says how far each is from its roof."""


def _ncu(command: tuple[str, ...], **given: Any) -> None:
    from stepscope import api
    from stepscope.api.options import WINDOW_KEYWORDS, window_spec
    from stepscope.api.suspects import suspects_of
    from stepscope.questions import need_timeline

    if not command:
        raise BadInput("no command to run", "write it after --, as in capture ncu --from run.sqlite -- python train.py")
    window = {k: given[k] for k in WINDOW_KEYWORDS if given[k] not in (None, False)}
    with progress.shown():
        opening = {"nsys": given["nsys"], "labels": given["labels"]}
        profile = api.open(*given["profiles"], cache=not given["no_cache"], **opening)
        need_timeline(profile, "capture ncu --from")
        found = suspects_of(profile, window_spec(profile, **window), given["share"], given["most"])
    wanted = ncu.Measurement(
        tuple(dict.fromkeys(kind.function for kind in found.kinds)),
        command,
        Path(given["output"]),
        given["question"],
        given["set"],
        skip=given["warmup"] * found.least,
        count=max(kind.needed for kind in found.kinds),
        launches=found.launches,
        range=given["range"],
        clocks=given["clock_control"],
    )
    lengths = [kind.total_ns / kind.launches for kind in found.kinds]
    table = [{c.name: getattr(kind, c.name) for c in COLUMNS} for kind in found.kinds]
    said = Result(rows(COLUMNS, table), command="capture ncu", sources=profile.sources)
    said.summary = {STATEMENT: _cost(wanted, found.share_pct, found.label, sum(lengths) / len(lengths))}
    Target.of(None, None).write(said)
    if given["dry_run"]:
        click.echo("\n" + shlex.join(wanted.argv(given["ncu"])))
        return
    program = ncu.find(given["ncu"])
    ncu.require_permission()
    with progress.shown():
        report = ncu.measure(wanted, program)
    _after(report, program, given)


def _cost(wanted: ncu.Measurement, share: float, label: str, length: float) -> str:
    launches = several(wanted.launches, "launch", "launches")
    cost = wanted.cost_s(length)
    passes = (
        f"about {wanted.passes} passes each, some {about(1e9 * cost, 2)} beside the program's own time"
        if cost is not None
        else f"as many passes as --set {wanted.set} takes"
    )
    functions = several(len(wanted.functions), "kernel function")
    return f"{functions} with {share:.0f} % of the compute of {label}: up to {launches} will be measured, {passes}."


def _after(report: Path, program: str, given: dict[str, Any]) -> None:
    """What came of it, and what to ask next."""
    from stepscope import api

    readable = importlib.util.find_spec("ncu_report") is not None
    page = ncu.raw_page(report, program) if given["csv"] or not readable else None
    for file in (report, *([page] if page else [])):
        click.echo(f"{file}  {show_size(file.stat().st_size)}")
    measured = api.open(report if readable or page is None else page, cache=False)
    click.echo(f"{several(measured.table('measured').height, 'launch', 'launches')} measured; next:")
    given_ = shlex.join(given["profiles"])
    click.echo(f"  stepscope kernels {given_} {shlex.quote(str(page if not readable and page else report))}")


command = click.Command(
    "ncu",
    callback=_ncu,
    help=DESCRIPTION,
    params=[
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND..."),
        click.Option(
            ["--from", "profiles"],
            multiple=True,
            required=True,
            metavar="PROFILE",
            help="The timeline that says which kernels take the time.",
        ),
        click.Option(
            ["--for", "question"],
            type=click.Choice(list(ncu.QUESTIONS)),
            default="roofline",
            help="What is asked: what bounds them, their roofline with stalls and access, or all that ncu knows.",
        ),
        click.Option(["--set"], metavar="NAME", help="A set of ncu's instead of what --for asks for."),
        click.Option(["--share"], type=float, default=80.0, help="Measure what takes so many % of the step's compute."),
        click.Option(["--most"], type=int, default=8, help="Kinds of kernels to measure at most."),
        click.Option(["--warmup"], type=int, default=2, help="Steps that are let pass before."),
        click.Option(["--range"], metavar="TEXT", help="Only launches within this NVTX range (of their own thread)."),
        click.Option(
            ["--clock-control"],
            type=click.Choice(["none", "base"]),
            default="none",
            help="none: clocks as in training; base: locked, so that figures repeat.",
        ),
        click.Option(["--ncu"], default="ncu", metavar="PATH", help="The ncu to run."),
        click.Option(["-o", "--output"], default="stepscope-ncu", metavar="FILE", help="The report, FILE.ncu-rep."),
        click.Option(["--csv"], is_flag=True, help="Its raw page as CSV, too."),
        click.Option(["--dry-run"], is_flag=True, help="Say what it would cost, print the command, and run nothing."),
        *window_options(),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        labels_option(),
        memory_option(),
    ],
    context_settings={"show_default": True},
)

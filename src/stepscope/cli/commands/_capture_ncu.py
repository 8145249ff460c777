"""Measure with Nsight Compute the few kernels that a timeline made suspects.

--from is a profile of the same program (nsys or torch.profiler): the kernels that take most of its step are measured,
and of identical layers (same function, grid and block) one launch. What that costs in passes and time is said first.
COMMAND is the program again; afterwards `stepscope kernels PROFILE REPORT` says how far each is from its roof.

Without --from, for a benchmark of a few kernels: one launch of each kind (function, grid and block) that COMMAND makes,
of those whose function matches --kernel; `stepscope roofline REPORT` says the rest.
"""

from __future__ import annotations

import importlib.util
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import click

from stepscope.api.options import Window
from stepscope.capture import ncu
from stepscope.capture.size import show_size
from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import Labels, Memory, NoCache, Nsys, Words
from stepscope.derive.rank.pattern import check_pattern
from stepscope.errors import BadInput
from stepscope.model.option import Shell
from stepscope.model.result import Result, names, rows
from stepscope.model.statement import STATEMENT, several
from stepscope.model.units import about

if TYPE_CHECKING:
    import polars as pl

    from stepscope.api.suspects import Suspects


class Row(TypedDict):
    name: Annotated[str, "short name"]
    grid: Annotated[str, "grid size"]
    block: Annotated[str, "block size"]
    launches: Annotated[int, "how often the window launches it"]
    total_ns: Annotated[int, "how long these take"]
    share_pct: Annotated[float, "of the compute of the window"]
    needed: Annotated[str, "launches to measure, so that all of its works are seen"]


def _ncu(
    command: Words,
    *,
    profiles: Annotated[
        tuple[str, ...],
        "The timeline that says which kernels take the time.",
        Shell(flags=("--from",), metavar="PROFILE"),
    ] = (),
    kernel: Annotated[str | None, "Without --from: only functions whose name matches.", Shell(metavar="REGEX")] = None,
    question: Annotated[
        str,
        "What is asked: what bounds them, their roofline with stalls and access, or all that ncu knows.",
        Shell(flags=("--for",), one_of=tuple(ncu.QUESTIONS)),
    ] = "roofline",
    set: Annotated[str | None, "A set of ncu's instead of what --for asks for.", Shell(metavar="NAME")] = None,
    share: Annotated[float, "Measure the kernels that take this % of the step's compute."] = 80.0,
    most: Annotated[int, "Measure at most this many kinds of kernels."] = 8,
    warmup: Annotated[
        int | None, "Steps to skip first, by default 2; without --from launches, by default none."
    ] = None,
    range: Annotated[
        str | None, "Only launches within this NVTX range (of their own thread).", Shell(metavar="TEXT")
    ] = None,
    clock_control: Annotated[
        Literal["none", "base"], "none: clocks as in training; base: locked, so that figures repeat."
    ] = "none",
    program: Annotated[str, "The ncu to run.", Shell(flags=("--ncu",), metavar="PATH")] = "ncu",
    output: Annotated[
        str, "The report, FILE.ncu-rep.", Shell(flags=("-o", "--output"), metavar="FILE")
    ] = "stepscope-ncu",
    csv: Annotated[bool, "Also write its raw page as CSV."] = False,
    dry_run: Annotated[bool, "Show the expected cost and the command, and run nothing."] = False,
    window: Window,
    no_cache: NoCache = False,
    nsys: Nsys = None,
    labels: Labels = None,
    memory: Memory = None,
) -> None:
    from stepscope import api
    from stepscope.api.options import window_spec
    from stepscope.api.suspects import suspects_of
    from stepscope.questions import need_timeline

    if not command:
        raise BadInput("no command to run", "write it after --, as in capture ncu --from run.sqlite -- python train.py")
    base = ncu.Measurement(
        (), command, Path(output), question, set, range=range, clocks=clock_control, pattern=kernel
    )  # fmt: skip
    if profiles:
        if kernel is not None:
            raise BadInput("--kernel and --from cannot be combined", "the timeline says which kernels take the time")
        with progress.shown():
            profile = api.open(*profiles, cache=not no_cache, nsys=nsys, labels=labels)
            need_timeline(profile, "capture ncu --from")
            suspects = suspects_of(profile, window_spec(profile, **window), share, most)
        wanted = _of_suspects(base, suspects, 2 if warmup is None else warmup)
        costs = Result(_table(suspects), command="capture ncu", sources=profile.sources)
        lengths = [kind.total_ns / kind.launches for kind in suspects.kinds]
        costs.summary = {STATEMENT: _cost(wanted, suspects.share_pct, suspects.label, sum(lengths) / len(lengths))}
        Target.of(None, None).write(costs)
    else:
        if kernel is not None:
            check_pattern("kernel", kernel)
        wanted = replace(base, skip=warmup or 0)
        click.echo(_cost_of_each(wanted))
    if dry_run:
        click.echo("\n" + shlex.join(wanted.argv(program)))
        return
    there = ncu.find(program)
    ncu.require_permission()
    with progress.shown():
        report = ncu.measure(wanted, there)
    _after(report, there, profiles, csv)


def _of_suspects(base: ncu.Measurement, suspects: Suspects, warmup: int) -> ncu.Measurement:
    return replace(
        base,
        functions=tuple(dict.fromkeys(kind.function for kind in suspects.kinds)),
        skip=warmup * suspects.least,
        count=max(kind.needed for kind in suspects.kinds),
        launches=suspects.launches,
    )


def _table(suspects: Suspects) -> pl.DataFrame:
    return rows(Row, [{name: getattr(kind, name) for name in names(Row)} for kind in suspects.kinds])


def _cost_of_each(wanted: ncu.Measurement) -> str:
    """How many launches there are, nobody knows before."""
    which = f"whose function matches {wanted.pattern!r}" if wanted.pattern else "that the program launches"
    passes = f"about {wanted.passes} passes each" if wanted.passes else f"as many passes as --set {wanted.set} takes"
    return f"One launch of each kind of kernel {which}, {passes}, beside the program's own time."


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


def _after(report: Path, program: str, profiles: tuple[str, ...], csv: bool) -> None:
    """What came of it, and what to ask next."""
    from stepscope import api

    readable = importlib.util.find_spec("ncu_report") is not None
    page = ncu.raw_page(report, program) if csv or not readable else None
    for file in (report, *([page] if page else [])):
        click.echo(f"{file}  {show_size(file.stat().st_size)}")
    measured = api.open(report if readable or page is None else page, cache=False)
    click.echo(f"{several(measured.table('measured').height, 'launch', 'launches')} measured; next:")
    asked = ["kernels", *profiles] if profiles else ["roofline"]
    click.echo(f"  stepscope {shlex.join([*asked, str(page if not readable and page else report)])}")


command = command_of(_ncu)

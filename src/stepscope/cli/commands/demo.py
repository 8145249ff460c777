"""A tour on a simulated 8-rank job with two planted faults: what each command says about it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import click

from stepscope import api, questions
from stepscope.cli import output, progress
from stepscope.cli.commands.simulate import describe
from stepscope.cli.declare import command_of
from stepscope.files import temporary
from stepscope.files.whole import working_folder
from stepscope.model.option import Shell
from stepscope.model.units import about
from stepscope.simulate.job.scenario import Scenario
from stepscope.store.disk import default_dir

#: Rank 3 computes half as long again as its peers, and rank 5's allocator frees and maps memory in every layer.
JOB = Scenario(
    schedule="1f1b",
    pp=2,
    ep=4,
    micro_batches=8,
    steps=4,
    seed=11,
    faults=("straggler:rank=3,factor=1.5", "alloc:rank=5,per_layer=2"),
)


@dataclass(frozen=True)
class Step:
    """One command of the tour, and what to look at in its answer."""

    command: str
    say: str
    options: dict[str, Any] = field(default_factory=dict)


STEPS = (
    Step("info", "What was opened: eight ranks, each with its kernels, and every kernel traced to its launch."),
    Step(
        "diagnose",
        "What to change first: rank 3. The allocator on rank 5 stands behind it: as long as rank 3 is slow, the step "
        "would gain less than 1 % without it (--least 0 lists it). The other commands show what this rests on.",
    ),
    Step("setup", "The trainer's label in the trace says where each rank sits in the mesh."),
    Step("window", "Which step the figures are about: that of median length, chosen on the host, measured on the GPU."),
    Step("streams", "Each rank computes on one stream and communicates on others.", {"rank": "0,3"}),
    Step(
        "breakdown",
        "Rank 3 computes nearly all the time while its peers, 0 to 2, wait in communication: the first fault. "
        "Rank 5 is idle five times as long as its neighbours: the second.",
    ),
    Step("overlap", "Rank 0's communication is exposed where it waits for rank 3.", {"rank": "0,3"}),
    Step("idle", "Why rank 5's GPU had nothing to do: the allocator.", {"by": "cause", "rank": "4,5"}),
    Step(
        "stragglers", "Across ranks: who made whom wait, followed to its root. Rank 3 leads, because it computes more."
    ),
    Step("critical-path", "What made the step as long as it is: mostly rank 3's compute.", {"by": "rank"}),
)


def _demo(
    *,
    keep: Annotated[str | None, "Leave the simulated traces and a report there.", Shell(metavar="DIR")] = None,
) -> None:
    with working_folder(temporary.place(default_dir()), "stepscope-demo-") as folder:
        traces, shown = (folder / "traces", "DIR") if keep is None else (Path(keep), keep)
        _mended(*_tour(traces, shown), folder / "mended", shown)
        if keep is not None:
            _page(traces)
            return
    click.echo("\nThe traces are gone; `stepscope demo --keep DIR` leaves them, with a report to look at in a browser.")


def _tour(folder: Path, shown: str) -> tuple[api.Profile, int]:
    """Every command of the tour; the job's profile, and what its first finding promised."""
    from stepscope.simulate.run import simulate_to

    click.echo(f"Simulating {describe(JOB)}.")
    with progress.shown():
        simulate_to(JOB, folder, ("nsys",))
    profile = api.open(folder / "*.sqlite", cache=False)
    profile.named = None  # it is gone after the tour: commands say PROFILE
    promised = 0
    for step in STEPS:
        if step.command not in questions.names():
            continue
        options = "".join(f" --{k} {v}" for k, v in step.options.items())
        _say(f"$ stepscope {step.command} {shown}/*.sqlite{options}", step.say)
        with progress.shown():
            result = api.analyse(profile, step.command, **step.options)
        output.Target.of(None, None).write(result)
        if step.command == "diagnose":
            promised = int(result.rows["recoverable_ns"][0])
    return profile, promised


def _mended(base: api.Profile, promised: int, without: Path, shown: str) -> None:
    """What the first finding promised, and what taking its fault away gives."""
    from stepscope.simulate.run import simulate_to

    simulate_to(replace(JOB, faults=JOB.faults[1:]), without, ("nsys",))
    new = api.open(without / "*.sqlite", cache=False)
    _say(f"$ stepscope compare {shown}/*.sqlite --to MENDED/*.sqlite", "The same job without the fault of rank 3.")
    compared = api.compare(base, new)
    output.Target.of(None, None).write(compared)
    gained = -int(compared.summary["step"]["diff_ns"])
    click.echo(f"\ndiagnose promised {about(promised)} a step; taking the fault away gives {about(gained)}.")


def _say(line: str, text: str) -> None:
    title = click.style(line, bold=True) if output.colour() else line
    click.echo("\n".join(["", title, *textwrap.wrap(text, 100), ""]))


def _page(folder: Path) -> None:
    """The same as a picture."""
    from stepscope.cli.commands import report

    page = folder / "report.html"
    args = [*map(str, sorted(folder.glob("*.sqlite"))), "-o", str(page), "--no-cache"]
    report.command.main(args, standalone_mode=False)
    click.echo(f"\n{page} shows all of it, with a timeline: open it in a browser.")


command = command_of(_demo)

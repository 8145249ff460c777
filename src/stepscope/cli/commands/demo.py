"""A tour on a simulated 8-rank job with two planted faults: what each command says about it."""

from __future__ import annotations

import json
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

#: Rank 3 waits for its data loader in every step, and rank 5 computes a fifth longer than its peers.
JOB = Scenario(
    schedule="1f1b",
    pp=2,
    ep=4,
    micro_batches=8,
    steps=4,
    seed=11,
    faults=("dataloader:rank=3,stall_ms=30", "straggler:rank=5,factor=1.2"),
)

#: The finding that each fault is to be, and what it is called.
FAULTS = {
    JOB.faults[0]: ("data-stall", "the slow input of rank 3"),
    JOB.faults[1]: ("straggler", "the slow GPU of rank 5"),
}


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
        "What to change first: the input of rank 3, which is certain, as it was recorded. Then rank 5, whose GPU is "
        "slow beside its peers'. The other commands show what this rests on.",
    ),
    Step("setup", "The trainer's label in the trace says where each rank sits in the mesh."),
    Step("window", "Which step the figures are about: that of median length, chosen on the host, measured on the GPU."),
    Step("streams", "Each rank computes on one stream and communicates on others.", {"rank": "0,3"}),
    Step(
        "breakdown",
        "Rank 3 is idle for a fifth of the step while the others wait in communication: the first fault. "
        "Rank 5 computes longer than 4, 6 and 7, which do the same work: the second.",
    ),
    Step("overlap", "Rank 0's communication waits for rank 3: in order with compute, or exposed.", {"rank": "0,3"}),
    Step("idle", "Why rank 3's GPU had nothing to do: its host launched late.", {"by": "cause", "rank": "3,4"}),
    Step(
        "stragglers",
        "Across ranks: who made whom wait, followed to its root. Rank 3 gets its input late, rank 5 computes longer.",
    ),
    Step(
        "critical-path", "What made the step as long as it is: rank 5's compute, after rank 3's input.", {"by": "rank"}
    ),
)


def _demo(
    *,
    keep: Annotated[str | None, "Leave the simulated traces and a report there.", Shell(metavar="DIR")] = None,
) -> None:
    with working_folder(temporary.place(default_dir()), "stepscope-demo-") as folder:
        traces, shown = (folder / "traces", "DIR") if keep is None else (Path(keep), keep)
        base, promised = _tour(traces, shown)
        _mended(base, traces, shown)
        _kept_promises(promised, traces)
        if keep is not None:
            _page(traces)
            return
    click.echo("\nThe traces are gone; `stepscope demo --keep DIR` leaves them, with a report to look at in a browser.")


def _tour(folder: Path, shown: str) -> tuple[api.Profile, dict[str, int]]:
    """Every command of the tour; the job's profile, and what its findings promised."""
    click.echo(f"Simulating {describe(JOB)}.")
    profile = _simulated(JOB, folder)
    profile.named = None  # it is gone after the tour: commands say PROFILE
    promised: dict[str, int] = {}
    for step in STEPS:
        if step.command not in questions.names():
            continue
        options = "".join(f" --{k} {v}" for k, v in step.options.items())
        _say(f"$ stepscope {step.command} {shown}/*.sqlite{options}", step.say)
        with progress.shown():
            result = api.analyse(profile, step.command, **step.options)
        output.Target.of(None, None).write(result)
        if step.command == "diagnose":
            promised = dict(result.rows.select("id", "recoverable_ns").iter_rows())
    return profile, promised


def _mended(base: api.Profile, folder: Path, shown: str) -> None:
    """The same job without its first fault, and what the two captures say about it."""
    from stepscope.simulate.nsys.write import write
    from stepscope.simulate.run import simulate

    fault, (_, name) = next(iter(FAULTS.items()))
    with progress.shown():  # of one node, and without a truth of its own: working that out would take as long again
        path = folder / "mended" / "node0.sqlite"
        path.parent.mkdir(exist_ok=True)
        write(simulate(replace(JOB, faults=tuple(f for f in JOB.faults if f != fault))), 0, path)
        compared = api.compare(base, api.open(path, cache=False))
    _say(f"$ stepscope compare {shown}/*.sqlite --to {shown}/mended/*.sqlite", f"The same job without {name}.")
    output.Target.of(None, None).write(compared)


def _kept_promises(promised: dict[str, int], folder: Path) -> None:
    """What each finding promised, and what taking its fault away gives: the simulator ran the job without it."""
    from stepscope.simulate.run import TRUTH

    gains = {fault["fault"]: fault["recoverable_ns"] for fault in json.loads((folder / TRUTH).read_text())["faults"]}
    lines = [
        f"{name}: diagnose promised {about(promised[finding])} a step, taking it away gives {about(gains[fault])}."
        for fault, (finding, name) in FAULTS.items()
    ]
    click.echo("\n" + "\n".join(lines))


def _simulated(job: Scenario, folder: Path) -> api.Profile:
    from stepscope.simulate.run import simulate_to

    with progress.shown():
        simulate_to(job, folder, ("nsys",))
    return api.open(folder / "*.sqlite", cache=False)


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

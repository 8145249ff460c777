"""`capture hang`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click

from stepscope.capture import hang, slurm
from stepscope.errors import BadInput, CannotAnswer

DESCRIPTION = """Make a job dumpable without edits, and collect dumps and stacks of all its ranks while it hangs.

Before the job: `eval "$(stepscope capture hang --env -o DIR)"` sets what PyTorch's flight recorder needs: a ring of
calls, dumps when the watchdog times out, a pipe per rank to ask for one, timing. DIR must be seen by all nodes.

While it hangs: `stepscope capture hang -o DIR` asks every rank for its dump, takes stacks with py-spy where it is
installed, what `ncclras` and dmesg say, and notes when. Inside a SLURM allocation it does so on every node (srun
--overlap). Nothing is ended. Then: `stepscope hang DIR`."""


def _hang(output: str, env: bool, here: bool, wait: float, buffer: int, timing: bool, stacks: bool) -> None:
    folder = Path(output)
    if buffer < 1 or not 0 < wait <= 3600:
        raise BadInput("--buffer and --wait must be above 0", "give other numbers")
    if env:
        for name, value in hang.environment(folder, buffer=buffer, timing=timing).items():
            click.echo(f"export {name}={shlex.quote(value)}")
        click.echo(f"mkdir -p {shlex.quote(str(folder.absolute()))}")
        return
    job = None if here else slurm.allocation()
    if job is not None:
        _on_nodes(folder, job, wait, stacks)
        return
    done = hang.collect(folder, wait_s=wait, stacks=stacks)
    for text in done.lacking:
        click.echo(f"note: no {text}", err=True)
    if not done.dumped_ns:
        raise CannotAnswer(
            f"{folder}: no rank wrote a dump",
            "the job must be started with what `capture hang --env` prints; ranks that use NCCL listen to their pipe",
        )
    silent = f"; none of ranks {', '.join(map(str, done.silent))}" if done.silent else ""
    click.echo(f"{len(done.dumped_ns)} dumps{silent}, stacks of {len(done.stacks)} ranks, in {folder}")
    click.echo(f"now: stepscope hang {shlex.quote(str(folder))}")


def _on_nodes(folder: Path, job: slurm.Allocation, wait: float, stacks: bool) -> None:
    words = [sys.executable, "-m", "stepscope", "capture", "hang", "--here", "-o", str(folder.absolute())]
    words += ["--wait", str(wait), *([] if stacks else ["--no-stacks"])]
    tasks = [f"--jobid={job.job}", "--overlap", f"--nodes={job.nodes}", "--ntasks-per-node=1"]
    status = subprocess.run(["srun", *tasks, *words], check=False, stdin=subprocess.DEVNULL).returncode
    if status:
        raise BadInput(f"srun ended with {status}", "see what the nodes said above")


command = click.Command(
    "hang",
    callback=_hang,
    help=DESCRIPTION,
    params=[
        click.Option(["-o", "--output"], required=True, metavar="DIR", help="Folder of the dumps, seen by all nodes."),
        click.Option(["--env"], is_flag=True, help="Print what to set before the job starts, and collect nothing."),
        click.Option(["--here"], is_flag=True, help="Only this node, also inside an allocation."),
        click.Option(["--wait"], type=float, default=60.0, metavar="SECONDS", help="How long ranks have to answer."),
        click.Option(["--buffer"], type=int, default=20_000, help="Calls that each rank keeps (with --env)."),
        click.Option(
            ["--timing/--no-timing"], default=True, help="Tell calls that run from enqueued ones (with --env)."
        ),
        click.Option(["--stacks/--no-stacks"], default=True, help="Take stacks of Python with py-spy."),
    ],
    context_settings={"show_default": True},
)

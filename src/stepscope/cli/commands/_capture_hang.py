"""Make a job dumpable without edits, and collect dumps and stacks of all its ranks while it hangs.

Before the job: `eval "$(stepscope capture hang --env -o DIR)"` sets what PyTorch's flight recorder needs: a ring of
calls, dumps when the watchdog times out, a pipe per rank to ask for one, timing. DIR must be seen by all nodes.

While it hangs: `stepscope capture hang -o DIR` asks every rank for its dump, takes stacks with py-spy where it is
installed, what `ncclras` and dmesg say, and notes when. Inside a SLURM allocation it does so on every node (srun
--overlap). Nothing is ended. Then: `stepscope hang DIR`.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import click

from stepscope.capture import hang, slurm
from stepscope.cli.declare import command_of
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.option import Shell


def _hang(
    *,
    output: Annotated[str, "Folder of the dumps, seen by all nodes.", Shell(flags=("-o", "--output"), metavar="DIR")],
    env: Annotated[bool, "Print the variables to set before the job starts, and collect nothing."] = False,
    here: Annotated[bool, "Only this node, also inside an allocation."] = False,
    wait: Annotated[float, "How long to wait for ranks to answer.", Shell(metavar="SECONDS")] = 60.0,
    buffer: Annotated[int, "Calls that each rank keeps (with --env)."] = 20_000,
    timing: Annotated[bool, "Tell calls that run from enqueued ones (with --env)."] = True,
    stacks: Annotated[bool, "Take stacks of Python with py-spy."] = True,
) -> None:
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
        raise BadInput(f"srun ended with {status}", "see the output of the nodes above")


command = command_of(_hang)

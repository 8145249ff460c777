"""Measure what all-reduce and all-to-all reach on the job's own ranks, for `collectives --ceiling`.

A short sweep of message sizes with torch: torchrun starts the ranks on this machine, inside a SLURM allocation on all
of its nodes. Files in the columns of nccl-tests are kept in the folder `nccl` of the capture that -o names, and
`stepscope collectives CAPTURE --ceiling CAPTURE` sets them beside what the job's collectives reached. Run it where the
job runs, with the variables of NCCL that the job has, and while nothing else uses the GPUs.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import click

from stepscope.capture import nccl, slurm
from stepscope.capture.link_sweep import OPERATIONS
from stepscope.capture.size import parse_size
from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.errors import BadInput
from stepscope.model.option import Shell


def _nccl(
    *,
    output: Annotated[
        str, "Folder of the capture that it goes beside, or any folder.", Shell(flags=("-o", "--output"), metavar="DIR")
    ] = "stepscope-nccl",
    nproc: Annotated[int, "Ranks per node; by default one for each visible GPU."] = 0,
    backend: Annotated[Literal["nccl", "gloo"], "gloo: between CPUs, to try the way without GPUs."] = "nccl",
    operations: Annotated[
        str, f"Of {', '.join(OPERATIONS)}.", Shell(flags=("--op",), metavar="NAME,...")
    ] = "all_reduce,alltoall",
    least: Annotated[str, "Smallest message.", Shell(flags=("--min",), metavar="SIZE")] = "1KiB",
    most: Annotated[
        str, "Largest message; each is four times the one before.", Shell(flags=("--max",), metavar="SIZE")
    ] = "256MiB",
    python: Annotated[str, "Python of the training environment.", Shell(metavar="PATH")] = "python3",
    port: Annotated[int, "Rendezvous port.", Shell(metavar="N", between=(0, 65535))] = 29500,
    dry_run: Annotated[bool, "Print the exact command, and run nothing."] = False,
) -> None:
    names = tuple(dict.fromkeys(name.strip() for name in operations.split(",") if name.strip()))
    if unknown := [name for name in names if name not in OPERATIONS]:
        raise BadInput(f"--op {unknown[0]}: not known", f"give some of {', '.join(OPERATIONS)}")
    if not names:
        raise BadInput("--op names nothing", f"give some of {', '.join(OPERATIONS)}")
    sweep = nccl.Sweep(
        nccl.folder_of(Path(output)), nproc or nccl.default_nproc(backend), names, backend,
        parse_size(least), parse_size(most), python, port,
    )  # fmt: skip
    nccl.check(sweep)
    job = slurm.allocation()
    if dry_run:
        click.echo(shlex.join(sweep.argv(job)))
        return
    with progress.shown():
        files = nccl.run(sweep, job)
    for file in files:
        lines = file.read_text("utf-8").splitlines()
        rows = [line.split() for line in lines if not line.startswith("#")]
        stopped = "".join(f"; {line[2:]}" for line in lines if line.startswith("# stopped"))
        best = max((float(row[-1]) for row in rows), default=0.0)
        click.echo(f"{file}  {len(rows)} sizes, up to {best:g} GB/s of bus bandwidth{stopped}")
    click.echo(f"now: stepscope collectives PROFILE --ceiling {shlex.quote(str(sweep.folder))}")


command = command_of(_nccl)

"""Make traces of a job whose truth is known: schedules, meshes, nodes, and planted faults.

A discrete-event simulation of host threads, streams, events and collectives. It writes one nsys SQLite file per node
or one torch.profiler trace per rank, and truth.json with the answers that the other commands must give.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import by_user
from stepscope.errors import BadInput
from stepscope.model.option import OptionsOf, Shell
from stepscope.model.units import size
from stepscope.simulate.hang.faults import CLASSES as HANGS
from stepscope.simulate.hang.faults import OPTIONS as HANG_OPTIONS
from stepscope.simulate.job.faults import KNOWN
from stepscope.simulate.job.scenario import Scenario

FORMATS = ("nsys", "kineto")
#: Sizes that a job that hangs has, too. Its defaults are its own: the smallest mesh in which groups cross.
_OF_HANGS = ("tp", "pp", "dp", "ep", "layers", "micro_batches", "steps", "seed", "jitter")
_FAULTS = ", ".join(f"{name} ({', '.join(params)})" for name, params in KNOWN.items())


def _simulate(
    *,
    job: Annotated[dict[str, Any], OptionsOf(Scenario)],
    fault: Annotated[
        tuple[str, ...],
        "Plant a fault, such as straggler:rank=3,factor=1.5; may be repeated. Known, with their parameters: "
        f"{_FAULTS}.",
        Shell(metavar="NAME:KEY=VALUE,..."),
    ] = (),
    hang: Annotated[
        str | None,
        "Write flight-recorder dumps of a job that hangs, such as host:rank=3,timing=off. Classes: "
        f"{', '.join(HANGS)}. Keys: {', '.join(HANG_OPTIONS)}. By default "
        "--tp 2 --pp 2 --dp 2 and six steps.",
        Shell(metavar="CLASS:KEY=VALUE,..."),
    ] = None,
    write: Annotated[
        str, "nsys, kineto, or nsys,kineto; with --hang pickle or json.", Shell(metavar="FORMATS")
    ] = "nsys",
    output: Annotated[str, "Directory to write into.", Shell(flags=("-o", "--output"), metavar="DIR")],
) -> None:
    from stepscope.simulate.run import simulate_to

    if hang is not None:
        _simulate_hang(Path(output), hang, fault, write, job)
        return
    formats = tuple(dict.fromkeys(part.strip() for part in write.split(",") if part.strip()))
    unknown = [f for f in formats if f not in FORMATS]
    if unknown or not formats:
        raise BadInput(f"--write {write}: no format {unknown[0] if unknown else ''!r}", f"give {' or '.join(FORMATS)}")
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"-o {folder}: is a file", "name a directory")
    scenario = Scenario(faults=fault, **job)
    with progress.shown():
        written = simulate_to(scenario, folder, formats)
    click.echo(describe(scenario))
    for path in written if len(written) <= 12 else [*written[:4], *written[-2:]]:
        click.echo(f"  {path}  {size(path.stat().st_size)}")
    if len(written) > 12:
        click.echo(f"  and {len(written) - 6} more")


def _simulate_hang(folder: Path, text: str, fault: tuple[str, ...], write: str, job: dict[str, Any]) -> None:
    """Dumps of the flight recorder of a job that hangs, instead of traces."""
    from stepscope.simulate.hang.faults import of_dumps, parse
    from stepscope.simulate.hang.job import HangJob
    from stepscope.simulate.hang.run import simulate_hang

    if fault:
        raise BadInput("--hang and --fault cannot be combined", "a job that hangs leaves dumps, not traces")
    formats = {"nsys": ("pickle",), "pickle": ("pickle",), "json": ("json",), "pickle,json": ("pickle", "json")}
    if write not in formats:
        raise BadInput(f"--write {write}: not a format of dumps", "give pickle, json, or pickle,json")
    if folder.exists() and (not folder.is_dir() or any(folder.glob("nccl_trace_rank_*"))):
        raise BadInput(f"-o {folder}: holds another job", "name a directory that is empty, or not there")
    given = {key: job[key] for key in _OF_HANGS if by_user(key)}
    done = simulate_hang(HangJob(**given, **of_dumps(text)), parse(text))
    written = done.write(folder, formats[write])
    truth = done.truth()
    ranks = f", ranks {', '.join(map(str, truth['ranks']))}" if truth["ranks"] else ""
    click.echo(f"{done.made.job.world} ranks, planted: {truth['class']}{ranks}")
    click.echo(f"  {len(written)} files in {folder}")


def describe(scenario: Scenario) -> str:
    """One line on the job."""
    axes = " ".join(f"{a}={getattr(scenario, a)}" for a in ("pp", "dp", "cp", "ep", "tp") if getattr(scenario, a) > 1)
    planted = f", planted: {' '.join(scenario.faults)}" if scenario.faults else ""
    nodes = f"{scenario.nodes} node{'s' * (scenario.nodes > 1)}"
    ranks = f"{scenario.world} rank{'s' * (scenario.world > 1)}"
    return f"{ranks} on {nodes}, {scenario.schedule}{f' {axes}' if axes else ''}{planted}"


command = command_of(_simulate)

"""The end of `capture run`: what was captured, what it cost, whether it is any good, and what to ask first."""

from __future__ import annotations

import sys

import click

from stepscope.capture import step_times
from stepscope.capture.run import Captured
from stepscope.capture.size import show_size
from stepscope.errors import GateFailed
from stepscope.model.result import Result


def summary(done: list[Captured], verified: list[Result | GateFailed] | None) -> None:
    """A few lines for each profiler; the first capture that failed is the exit status."""
    for i, one in enumerate(done):
        for file in one.files:
            click.echo(f"{file}  {show_size(file.stat().st_size)}")
        click.echo(" · ".join(_parts(one, verified[i] if verified else None)))
        if reports := sorted(one.folder.glob("*.nsys-rep")):
            click.echo(
                f"note: {reports[0].name} holds the whole environment of the command, which nsys writes into it; to "
                "share the capture take the .sqlite, in which only known variables are left",
                err=True,
            )
        if status := one.manifest["captured"]["exit_status"]:
            click.echo(
                f"note: the command failed with status {status} after the capture: {one.folder}/log.txt", err=True
            )
    failed = next((v for v in verified or () if isinstance(v, GateFailed)), None)
    if failed is None:
        where = done[0].folder.parent if len(done) > 1 else done[0].folder  # every command takes both together
        of_gpu = bool(done[0].manifest["scenario"]["machine"]["gpus"])
        click.echo(f"next: stepscope {'diagnose' if of_gpu else 'nvtx'} {where}")
    sys.stdout.flush()
    if failed is not None:
        raise failed


def _parts(one: Captured, verified: Result | GateFailed | None) -> list[str]:
    captured, scenario = one.manifest["captured"], one.manifest["scenario"]
    times = captured["step_ns"]
    counts = sorted({sum(profiled for _, profiled in mine) for mine in times.values()})
    parts = [one.backend]
    if counts:
        few, many = counts[0], counts[-1]
        steps = f"{few} to {many} steps" if few < many else f"{few} step{'s' * (few != 1)}"
        parts.append(f"{steps} on {len(times)} rank{'s' * (len(times) != 1)}")
    else:
        parts.append(f"--trigger {scenario['trigger']}")
    slower = step_times.slowdown(step_times.profiled(one.manifest), step_times.unprofiled(one.manifest))
    if slower is not None:
        parts.append(f"{slower:.2f} times an unprofiled step")
    parts.append(f"{show_size(sum(f['bytes'] for f in captured['files']))}")
    if isinstance(verified, GateFailed):
        parts.append("verify: not good")
    elif verified is not None:
        warnings = verified.summary.get("warning", 0)
        parts.append("verify: good" + (f", {warnings} warning{'s' * (warnings != 1)}" if warnings else ""))
    return parts

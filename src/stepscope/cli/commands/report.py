"""One page that shows it all: findings, where the step went, and a timeline to zoom into; or Markdown.

report.html is a single file that needs no network: the operator statement and the findings, the step of every rank,
overlap, collectives, stragglers, the pipeline, and a timeline of all ranks and streams; a click on a finding shows it
there. Every figure says its window and the command that prints it. report.md is the short form for issues and pull
requests. docs/report.md describes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from stepscope.api.options import Window
from stepscope.capture.size import show_size
from stepscope.cli import output, progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import Labels, NoCache, Nsys, Profiles, RankNumbers, Reading, Taxonomy, Workers
from stepscope.errors import BadInput
from stepscope.files import budget
from stepscope.model.command_line import command_line
from stepscope.model.option import Shell


def _report(
    profile: Profiles,
    *,
    output_file: Annotated[
        str | None,
        "report.html or report.md; without it, Markdown on standard output.",
        Shell(flags=("-o", "--output"), metavar="FILE"),
    ] = None,
    over: Annotated[
        bool, "PROFILE... are captures of one job over time, or a folder of them: a page of trends."
    ] = False,
    window: Window,
    workers: Workers,
    rank: RankNumbers = None,
    memory: Annotated[
        tuple[str, ...],
        "A size as in 1GiB: memory to use at most; the rest goes to temporary files. Otherwise a snapshot of the "
        "allocator of the same run, for the section on memory (repeat it).",
        Shell(metavar="SIZE|SNAPSHOT"),
    ] = (),
    no_cache: NoCache = False,
    nsys: Nsys = None,
    taxonomy: Taxonomy = None,
    labels: Labels = None,
) -> None:
    from stepscope import api
    from stepscope.api.reporting import drawn, report

    snapshots = snapshots_of(memory)
    path = None if output_file in (None, "-") else Path(str(output_file))
    if path is not None:
        drawn(path)  # refused before any work is done
        output.writable(path)
    reading = Reading(no_cache, nsys, taxonomy, labels)
    if over:
        if alone := [*window, *["rank"] * bool(rank), *["memory"] * bool(snapshots)]:
            raise BadInput(f"--over takes no --{alone[0]}", "every capture is asked about its median step")
        _over(profile, path, reading)
        return
    target = output.Target("md", path)
    with progress.shown():
        # A page asks so much of every rank that this process reads all of them: workers would open files for nothing.
        opened = reading.open(profile)
        target.spare([*map(Path, profile), *opened.paths])
        page = report(
            opened,
            profile,
            rank=rank,
            memory=(api.open(*snapshots, cache=not no_cache), snapshots) if snapshots else None,
            words=("-o", output_file) if output_file else (),
            **window,
        )
        text = page.markdown if path is None else page.text(path)
    target.deliver(text.encode())
    if path is not None and path.is_file():
        click.echo(f"wrote {path} ({show_size(path.stat().st_size)})")


def _over(paths: tuple[str, ...], path: Path | None, reading: Reading) -> None:
    """A trend of several captures, as a page or as Markdown."""
    from stepscope.api.reporting import drawn
    from stepscope.api.trending import over
    from stepscope.render.trend import to_html, to_markdown

    target = output.Target("md", path)
    target.spare(map(Path, paths))
    line = command_line("report", "--over", *paths, *(["-o", str(path)] if path else []))
    with progress.shown():
        trend = over(*paths, **reading.keywords)
    write = to_markdown if path is None or not drawn(path) else to_html
    target.deliver(write(trend, line).encode())
    if path is not None and path.is_file():
        click.echo(f"wrote {path} ({show_size(path.stat().st_size)})")


command = command_of(_report)


def snapshots_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """`report --memory` takes allocator snapshots, too: what reads as a size is the budget, the rest is files."""
    sizes = [text for text in given if budget.size_of(text) is not None]
    budget.keep(sizes[-1] if sizes else None)
    return tuple(text for text in given if text not in sizes)

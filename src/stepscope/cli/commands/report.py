"""One page that shows it all: findings, where the step went, and a timeline to zoom into; or Markdown."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from stepscope.capture.size import show_size
from stepscope.cli import output, progress
from stepscope.cli.analysis import profile_argument, reading_options, window_options, worker_options
from stepscope.cli.memory import snapshots_of
from stepscope.errors import BadInput


def _report(profile: tuple[str, ...], output_file: str | None, **given: Any) -> None:
    from stepscope import api
    from stepscope.api.options import WINDOW_KEYWORDS
    from stepscope.api.reporting import drawn, report

    path = None if output_file in (None, "-") else Path(str(output_file))
    if path is not None:
        drawn(path)  # refused before any work is done
        output.writable(path)
    if given["over"]:
        _over(profile, path, given)
        return
    window = {k: given[k] for k in WINDOW_KEYWORDS if given[k] not in (None, False)}
    if window.get("index") == "median":
        del window["index"]
    target = output.Target("md", path)
    with progress.shown():
        # A page asks so much of every rank that this process reads all of them: workers would open files for nothing.
        opening = {k: given[k] for k in ("nsys", "taxonomy", "labels")}
        cache = not given["no_cache"]
        opened = api.open(*profile, cache=cache, **opening)
        target.spare([*map(Path, profile), *opened.paths])
        page = report(
            opened,
            profile,
            rank=given["rank"],
            memory=(api.open(*given["memory"], cache=cache), given["memory"]) if given["memory"] else None,
            words=("-o", output_file) if output_file else (),
            **window,
        )
        text = page.markdown if path is None else page.text(path)
    target.deliver(text.encode())
    if path is not None and path.is_file():
        click.echo(f"wrote {path} ({show_size(path.stat().st_size)})")


def _over(paths: tuple[str, ...], path: Path | None, given: dict[str, Any]) -> None:
    """A trend of several captures, as a page or as Markdown."""
    from stepscope.api.options import WINDOW_KEYWORDS
    from stepscope.api.reporting import drawn
    from stepscope.api.trending import over
    from stepscope.render.trend import to_html, to_markdown

    alone = [k for k in WINDOW_KEYWORDS if given[k] not in (None, False, "median")] + ["rank"] * bool(given["rank"])
    if alone or given["memory"]:
        raise BadInput(f"--over takes no --{(alone or ['memory'])[0]}", "every capture is asked about its median step")
    target = output.Target("md", path)
    target.spare(map(Path, paths))
    words = ["stepscope", "report", "--over", *paths, *(["-o", str(path)] if path else [])]
    with progress.shown():
        opening = {k: given[k] for k in ("nsys", "taxonomy", "labels")}
        trend = over(*paths, cache=not given["no_cache"], **opening)
    write = to_markdown if path is None or not drawn(path) else to_html
    target.deliver(write(trend, shlex.join(words)).encode())
    if path is not None and path.is_file():
        click.echo(f"wrote {path} ({show_size(path.stat().st_size)})")


command = click.Command(
    "report",
    callback=_report,
    params=[
        profile_argument(),
        click.Option(
            ["-o", "--output", "output_file"],
            metavar="FILE",
            help="report.html or report.md; without it, Markdown on standard output.",
        ),
        click.Option(
            ["--over"],
            is_flag=True,
            help="PROFILE... are captures of one job over time, or a folder of them: a page of trends.",
        ),
        *window_options(),
        *worker_options(),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(
            ["--memory"],
            multiple=True,
            metavar="SIZE|SNAPSHOT",
            callback=lambda _context, _option, given: snapshots_of(given),
            help="A size as in 1GiB: memory to keep to; what does not fit goes to temporary files. Else a snapshot of "
            "the allocator of the same run, for the section on memory (repeat it).",
        ),
        *(option for option in reading_options() if option.name != "memory"),
    ],
    help="One page that shows it all: findings, where the step went, and a timeline to zoom into; or Markdown.\n\n"
    "report.html is a single file that needs no network: the operator statement and the findings, the step of every "
    "rank, overlap, collectives, stragglers, the pipeline, and a timeline of all ranks and streams; a click on a "
    "finding shows it there. Every figure says its window and the command that prints it. report.md is the short form "
    "for issues and pull requests. docs/report.md describes both.",
    context_settings={"show_default": True},
)

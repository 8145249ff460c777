"""One page that shows it all: findings, where the step went, and a timeline to zoom into; or Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope.capture.size import show_size
from stepscope.cli import output, progress
from stepscope.cli.analysis import profile_argument, window_options, worker_options
from stepscope.errors import BadInput

if TYPE_CHECKING:
    from stepscope.report import Report

#: By suffix: whether the report is drawn.
_SUFFIXES = {".html": True, ".htm": True, ".md": False, ".markdown": False}


def _report(profile: tuple[str, ...], output_file: str | None, **given: Any) -> None:
    from stepscope import api, questions
    from stepscope.api.options import WINDOW_KEYWORDS
    from stepscope.report import Asker, gather

    path = _path(output_file)
    drawn = path is not None and _SUFFIXES[path.suffix.lower()]
    rank = given["rank"]
    window = {k: given[k] for k in WINDOW_KEYWORDS if given[k] not in (None, False)}
    if window.get("index") == "median":
        del window["index"]
    target = output.Target("md", path)
    with progress.shown():
        opening = {k: given[k] for k in ("nsys", "taxonomy", "jobs", "cluster")}
        opened = api.open(*profile, cache=not given["no_cache"], **opening)
        questions.need_timeline(opened, "report")
        target.spare([*map(Path, profile), *opened.paths])
        chosen = opened.view(api.parse_ranks(rank) if rank else None).view(in_one_part=True)  # many questions
        asker = Asker(lambda name, **options: api.analyse(chosen, name, **options), profile, window, rank)
        if given["memory"]:
            held = api.open(*given["memory"], cache=not given["no_cache"])
            of_memory = Asker(lambda name, **options: api.analyse(held, name, **options), given["memory"])
            asker = replace(asker, of_memory=of_memory)
        words = ("-o", output_file) if output_file else ()
        made = gather(asker, asker.command("report", *words), drawn=drawn)
        text = _writer(drawn)(made)
    target.deliver(text.encode())
    if path is not None and path.is_file():
        click.echo(f"wrote {path} ({show_size(path.stat().st_size)})")


def _writer(drawn: bool) -> Callable[[Report], str]:
    if drawn:
        from stepscope.render.html.report import to_html

        return to_html
    from stepscope.render.report_markdown import to_markdown

    return to_markdown


def _path(file: str | None) -> Path | None:
    """Where to write, checked before any work is done."""
    if file in (None, "-"):
        return None
    path = Path(str(file))
    if path.suffix.lower() not in _SUFFIXES:
        raise BadInput(f"-o {path}: a report is a page or Markdown", "end it in .html or .md")
    return output.writable(path)


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
        *window_options(),
        *worker_options(),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(
            ["--memory"],
            multiple=True,
            metavar="SNAPSHOT",
            help="Snapshots of the allocator of the same run, for the section on memory (repeat it).",
        ),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
    ],
    help="One page that shows it all: findings, where the step went, and a timeline to zoom into; or Markdown.\n\n"
    "report.html is a single file that needs no network: the operator statement and the findings, the step of every "
    "rank, overlap, collectives, stragglers, the pipeline, and a timeline of all ranks and streams; a click on a "
    "finding shows it there. Every figure says its window and the command that prints it. report.md is the short form "
    "for issues and pull requests. docs/report.md describes both.",
    context_settings={"show_default": True},
)

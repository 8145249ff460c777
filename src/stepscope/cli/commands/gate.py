"""Is this run within limits of a baseline? For CI: exit 1 where not, with Markdown and JUnit to show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepscope.cli import output, progress
from stepscope.cli.commands._compare_options import (
    ToTheEnd,
    opening,
    opening_options,
    sides_of,
    spare,
    step_options,
    target_options,
)
from stepscope.errors import BadInput, GateFailed

if TYPE_CHECKING:
    from stepscope.compare.gate import Limit
    from stepscope.model.result import Result

_UNKNOWN = "what change it can tell is not known: that takes more than one step, or chunks of more than one run"

DESCRIPTION = """Is this run within limits of a baseline? For CI: exit 1 where not, with Markdown and JUnit to show.

`gate PROFILE --save NAME` keeps PROFILE as a baseline, in .stepscope/baselines/NAME.json, which is to be committed;
`gate PROFILE --baseline NAME` compares PROFILE with it; `gate BASE --to NEW` compares two profiles.

A limit is growth that is allowed, in percent of the base's step: `--limit step=2` (the default), `--limit
comm_exposed=1`, `--limit stage:stage2_f=0.5`, `--limit family:gemm=1`; of the pace, in percent of itself: `--limit
mean=2`, `--limit p99=5`; or a TOML file with a table [limits]. What cannot be decided (too few steps, too much noise,
another job) fails too, unless --allow-inconclusive."""


def _gate(base: tuple[str, ...], to: tuple[str, ...], **given: Any) -> None:
    from stepscope import api
    from stepscope.compare.baseline import path_of
    from stepscope.compare.gate import parse_limits

    target = output.Target.of(given.pop("output"), given.pop("format"))
    saved, name = given.pop("save"), given.pop("baseline")
    markdown, junit = (None if f is None else output.Target("md", output.writable(f)) for f in _files(given))
    files = [t.file.absolute() for t in (target, markdown, junit) if t is not None and t.file is not None]
    if twice := [file for n, file in enumerate(files) if file in files[:n]]:
        raise BadInput(f"{twice[0]}: given for two outputs", "give each a file of its own")
    allow, github = given.pop("allow_inconclusive"), given.pop("github")
    limits = {"limits": given.pop("limit"), "limits_file": given.pop("limits")}
    parsed = parse_limits(limits["limits_file"], limits["limits"])  # before anything is read
    given = opening(given)
    if saved is not None:
        _save(base, to, name, saved, parsed, given)
        return
    if name is not None:
        if to:
            raise BadInput("--baseline and --to are both a side to compare with", "give one of them")
        if not base:
            raise BadInput("no profile to check", "name it: gate PROFILE --baseline NAME")
        first, second = str(path_of(name)), list(base)
        _there(Path(first))
    elif not to:
        raise BadInput(
            "nothing to compare with", "give --baseline NAME, or the new run after --to; --save NAME makes one"
        )
    else:
        first, second = sides_of(base, to)  # type: ignore[assignment]
    for side in ([first] if isinstance(first, str) else first, second):
        spare(side, target, markdown, junit)

    def deliver(result: Result) -> None:
        from stepscope.render.gate import to_junit, to_markdown

        target.write(result)
        if markdown is not None:
            markdown.deliver(to_markdown(result))
        if junit is not None:
            junit.deliver(to_junit(result, allow_inconclusive=allow))
        if github:
            _to_github(result, target)

    with progress.shown():
        try:
            result = api.gate(first, second, **limits, allow_inconclusive=allow, **given)
        except GateFailed as failed:
            deliver(failed.result)
            raise
    deliver(result)


def _to_github(result: Result, target: output.Target) -> None:
    """The summary on the page of the job, and what did not pass beside the change."""
    from stepscope.render.gate import to_annotations, to_markdown

    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page is None:
        click.echo("note: --github: GITHUB_STEP_SUMMARY is not set: no summary was written", err=True)
    else:
        try:
            with Path(page).open("ab") as file:
                file.write(to_markdown(result) + b"\n")
        except OSError as error:
            raise BadInput(
                f"GITHUB_STEP_SUMMARY {page}: {error.strerror}", "run it in a job of GitHub Actions"
            ) from None
    for line in to_annotations(result):
        click.echo(line, err=target.file is None and target.format != "table")


def _files(given: dict[str, Any]) -> tuple[Path | None, Path | None]:
    return given.pop("markdown"), given.pop("junit")


def _there(path: Path) -> None:
    """A baseline that is missing or of a newer version is said before any profile is read."""
    from stepscope.compare.baseline import load

    load(path)


def _save(
    base: tuple[str, ...],
    to: tuple[str, ...],
    name: str | None,
    saved: str,
    limits: list[Limit],
    given: dict[str, Any],
) -> None:
    from stepscope import api
    from stepscope.compare.baseline import load, path_of
    from stepscope.compare.resolution import resolution

    if to or name is not None:
        raise BadInput("--save keeps one profile, and compares nothing", "leave out --to and --baseline")
    if not base:
        raise BadInput("no profile to save", "name it: gate PROFILE --save NAME")
    spare(base, output.Target("json", path_of(saved)))
    with progress.shown():
        path = api.save_baseline(list(base), saved, **given)
    click.echo(f"saved {path} ({path.stat().st_size} bytes)")
    kept, _ = load(path)
    found = resolution(kept)
    click.echo(found.statement() if found is not None else _UNKNOWN)
    limit = {limit.check: limit.pct for limit in limits}.get("step")
    if found is not None and limit is not None and (unseen := found.unseen(limit)):
        click.echo(f"note: {unseen}", err=True)


command = ToTheEnd(
    "gate",
    callback=_gate,
    help=DESCRIPTION,
    params=[
        click.Argument(["base"], nargs=-1, metavar="PROFILE... [--to NEW...]"),
        click.Option(
            ["--to"], multiple=True, metavar="NEW...", help="The other side: all that follows, up to an option."
        ),
        click.Option(["--baseline"], metavar="NAME|FILE", help="The base, as it was saved."),
        click.Option(["--save"], metavar="NAME|FILE", help="Save PROFILE as a baseline, and compare nothing."),
        click.Option(
            ["--limit"], multiple=True, metavar="WHAT=PERCENT", help="Growth allowed; may be repeated. Default: step=2."
        ),
        click.Option(["--limits"], type=click.Path(path_type=Path), metavar="FILE", help="Limits in a TOML file."),
        click.Option(["--allow-inconclusive"], is_flag=True, help="What cannot be decided does not fail."),
        click.Option(
            ["--markdown"], type=click.Path(path_type=Path), metavar="FILE", help="A summary for a pull request."
        ),
        click.Option(
            ["--github"],
            is_flag=True,
            help="In GitHub Actions: a summary on the job's page, and an annotation per check that did not pass.",
        ),
        click.Option(["--junit"], type=click.Path(path_type=Path), metavar="FILE", help="The checks as JUnit XML."),
        *step_options(),
        *opening_options(),
        *target_options(),
    ],
    context_settings={"show_default": True},
)

"""Is this run within the limits of a baseline? For CI: exits 1 if not, and writes Markdown and JUnit.

`gate PROFILE --save NAME` keeps PROFILE as a baseline, in .stepscope/baselines/NAME.json, which is to be committed;
`gate PROFILE --baseline NAME` compares PROFILE with it; `gate BASE --to NEW` compares two profiles.

A limit is the growth allowed, in percent of the base's step: `--limit step=2` (the default), `--limit
comm_exposed=1`, `--limit stage:stage2_f=0.5`, `--limit family:gemm=1`; for the pace, in percent of itself: `--limit
mean=2`, `--limit p99=5`; or a TOML file with a table [limits]. What cannot be decided (too few steps, too much noise,
another job) fails too, unless --allow-inconclusive.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from stepscope.cli import progress
from stepscope.cli.commands._compare_options import (
    Steps,
    To,
    ToTheEnd,
    chosen,
    sides_of,
    spare,
)
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target, writable
from stepscope.cli.shared import Output, Reading, Workers
from stepscope.errors import BadInput, GateFailed
from stepscope.model.option import Shell

if TYPE_CHECKING:
    from stepscope.compare.gate import Limit
    from stepscope.model.result import Result

_UNKNOWN = "what change it can tell is not known: that takes more than one step, or chunks of more than one run"


def _gate(
    base: Annotated[tuple[str, ...], "", Shell(metavar="PROFILE... [--to NEW...]", required=False)],
    *,
    to: To = (),
    baseline: Annotated[str | None, "The saved baseline to compare with.", Shell(metavar="NAME|FILE")] = None,
    save: Annotated[str | None, "Save PROFILE as a baseline, and compare nothing.", Shell(metavar="NAME|FILE")] = None,
    limit: Annotated[
        tuple[str, ...], "Growth allowed; may be repeated. Default: step=2.", Shell(metavar="WHAT=PERCENT")
    ] = (),
    limits: Annotated[Path | None, "Limits in a TOML file.", Shell(metavar="FILE")] = None,
    allow_inconclusive: Annotated[bool, "Do not fail where nothing can be decided."] = False,
    markdown: Annotated[Path | None, "A summary for a pull request.", Shell(metavar="FILE")] = None,
    github: Annotated[
        bool, "For GitHub Actions: a summary on the job's page, and an annotation for each check that did not pass."
    ] = False,
    junit: Annotated[Path | None, "The checks as JUnit XML.", Shell(metavar="FILE")] = None,
    steps: Steps,
    workers: Workers,
    reading: Reading,
    output: Output,
) -> None:
    from stepscope import api
    from stepscope.compare.baseline import path_of
    from stepscope.compare.gate import parse_limits

    target = output.target
    pull, checks = (None if file is None else Target("md", writable(file)) for file in (markdown, junit))
    files = [t.file.absolute() for t in (target, pull, checks) if t is not None and t.file is not None]
    if twice := [file for n, file in enumerate(files) if file in files[:n]]:
        raise BadInput(f"{twice[0]}: given for two outputs", "give each a file of its own")
    parsed = parse_limits(limits, limit)  # before anything is read
    how = chosen(steps, workers, reading)
    if save is not None:
        _save(base, to, baseline, save, parsed, how)
        return
    if baseline is not None:
        if to:
            raise BadInput("--baseline and --to both name what to compare with", "give one of them")
        if not base:
            raise BadInput("no profile to check", "name it: gate PROFILE --baseline NAME")
        first, second = str(path_of(baseline)), list(base)
        _there(Path(first))
    elif not to:
        raise BadInput(
            "nothing to compare with", "give --baseline NAME, or the new run after --to; --save NAME makes one"
        )
    else:
        first, second = sides_of(base, to)  # type: ignore[assignment]
    for side in ([first] if isinstance(first, str) else first, second):
        spare(side, target, pull, checks)

    def deliver(result: Result) -> None:
        from stepscope.render.gate import to_junit, to_markdown

        target.write(result)
        if pull is not None:
            pull.deliver(to_markdown(result))
        if checks is not None:
            checks.deliver(to_junit(result, allow_inconclusive=allow_inconclusive))
        if github:
            _to_github(result, target)

    with progress.shown():
        try:
            result = api.gate(
                first, second, limits=limit, limits_file=limits, allow_inconclusive=allow_inconclusive, **how
            )
        except GateFailed as failed:
            deliver(failed.result)
            raise
    deliver(result)


def _to_github(result: Result, target: Target) -> None:
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
    how: dict[str, Any],
) -> None:
    from stepscope import api
    from stepscope.compare.baseline import load, path_of
    from stepscope.compare.resolution import resolution

    if to or name is not None:
        raise BadInput("--save only saves one profile, and compares nothing", "leave out --to and --baseline")
    if not base:
        raise BadInput("no profile to save", "name it: gate PROFILE --save NAME")
    spare(base, Target("json", path_of(saved)))
    with progress.shown():
        path = api.save_baseline(list(base), saved, **how)
    click.echo(f"saved {path} ({path.stat().st_size} bytes)")
    kept, _ = load(path)
    detectable = resolution(kept)
    click.echo(detectable.statement() if detectable is not None else _UNKNOWN)
    limit = {limit.check: limit.pct for limit in limits}.get("step")
    if detectable is not None and limit is not None and (unseen := detectable.unseen(limit)):
        click.echo(f"note: {unseen}", err=True)


command = command_of(_gate, cls=ToTheEnd)

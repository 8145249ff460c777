"""What `compare` and `gate` share: an option that takes all that follows it, and how steps and runs are chosen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from stepscope.cli.analysis import reading_options
from stepscope.cli.output import Target
from stepscope.errors import BadInput
from stepscope.render import FORMATS

BASE = click.Argument(["base"], nargs=-1, metavar="BASE... --to NEW...")


class ToTheEnd(click.Command):
    """A command whose `--to` takes every argument that follows, up to the next option: what a shell makes of a glob."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else _spread(args))


def _spread(args: list[str]) -> list[str]:
    """`--to a b` as `--to a --to b`."""
    spread: list[str] = []
    taking = False
    for at, word in enumerate(args):
        if word == "--":
            return [*spread, *args[at:]]
        if word == "--to":
            taking = True
            if at + 1 == len(args) or args[at + 1].startswith("-"):
                raise BadInput("--to names no profile", "give the new run after it: compare BASE --to NEW")
            continue
        if word.startswith("-") and word != "-":
            taking = word.startswith("--to=")
            spread.append(word)
            continue
        spread += ["--to", word] if taking else [word]
    return spread


def sides_of(base: tuple[str, ...], to: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Both sides, neither empty."""
    if not to:
        raise BadInput("nothing to compare with", "name the new run after --to: compare BASE --to NEW")
    if not base:
        raise BadInput("--to took every profile", "name the base before it: compare BASE --to NEW")
    return list(base), list(to)


def spare(inputs: Iterable[str], *targets: Target | None) -> None:
    """Refuse to write over what will be read, be it named or in a folder that is."""
    from stepscope.compare.baseline import is_baseline
    from stepscope.sources.open import find_profiles

    given = [Path(p) for p in inputs]
    profiles = [p for p in given if not is_baseline(p)]
    files = [*given, *(path for path, _ in (find_profiles(profiles) if profiles else ()))]
    for target in targets:
        if target is not None:
            target.spare(files)


def step_options() -> list[click.Option]:
    return [
        click.Option(
            ["--anchor"], metavar="REGEX", help="Ranges that are steps, instead of those that are recognized."
        ),
        click.Option(
            ["--step"], is_flag=True, help="Steps, from the end of the one before to their own end (default)."
        ),
        click.Option(["--chunk"], is_flag=True, help="The overlapped chunks of a pipeline, one by one."),
        click.Option(["--whole"], is_flag=True, help="The whole capture as one step."),
        click.Option(["--warmup"], type=int, default=0, metavar="N", help="Leave out so many steps at the beginning."),
        click.Option(
            ["--runs"],
            type=click.Choice(["auto", "one", "folder", "file"]),
            default="auto",
            help="How the files of a side make runs; auto: by the ranks that they hold.",
        ),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
    ]


def opening_options() -> list[click.Option]:
    return [
        click.Option(["--jobs"], type=int, metavar="N", help="Processes that read files; default: one per core."),
        click.Option(["--cluster"], metavar="ADDRESS", help="Read on the Dask cluster at tcp://host:port instead."),
        *reading_options(),
    ]


def target_options() -> list[click.Option]:
    return [
        click.Option(["--format"], type=click.Choice(FORMATS), help="Default: table, or by the suffix of -o."),
        click.Option(["-o", "--output"], metavar="FILE", help="Write there instead of to standard output."),
    ]


def opening(given: dict[str, Any]) -> dict[str, Any]:
    """The options that say how paths are opened and steps chosen, out of all that were given."""
    given["cache"] = not given.pop("no_cache")
    return given

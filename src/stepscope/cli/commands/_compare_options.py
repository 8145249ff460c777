"""What `compare` and `gate` share: an option that takes all that follows it, and how steps and runs are chosen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import click

from stepscope.cli.output import Target
from stepscope.cli.shared import RankNumbers, Reading, Workers
from stepscope.errors import BadInput
from stepscope.model.option import Shell

Base = Annotated[tuple[str, ...], "", Shell(metavar="BASE... --to NEW...", required=False)]
To = Annotated[tuple[str, ...], "The other side: all arguments up to the next option.", Shell(metavar="NEW...")]


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
        first, *others = base or ("BASE",)
        new = others[-1] if len(others) == 1 else "NEW"
        raise BadInput("nothing to compare with", f"name the new run after --to: compare {first} --to {new}")
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


class Steps(NamedTuple):
    """Which steps are compared, and of which ranks."""

    anchor: Annotated[str | None, "Use the ranges that match REGEX as steps.", Shell(metavar="REGEX")] = None
    step: Annotated[bool, "Steps, from the end of the one before to their own end (default)."] = False
    chunk: Annotated[bool, "The overlapped chunks of a pipeline, one by one."] = False
    whole: Annotated[bool, "The whole capture as one step."] = False
    warmup: Annotated[int, "Leave out this many steps at the beginning.", Shell(metavar="N")] = 0
    runs: Annotated[
        Literal["auto", "one", "folder", "file"],
        "How the files of each side are grouped into runs; auto: by the ranks that they hold.",
    ] = "auto"
    rank: RankNumbers = None


def chosen(steps: Steps, workers: Workers, reading: Reading) -> dict[str, Any]:
    """The keywords that say how paths are opened and steps chosen."""
    return {**steps._asdict(), **workers._asdict(), **reading.keywords}

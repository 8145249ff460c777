"""`capture verify`."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import click

from stepscope import api, questions
from stepscope.capture import manifest, step_times
from stepscope.capture.size import parse_size
from stepscope.capture.spec import BACKEND_OF
from stepscope.cli import progress
from stepscope.cli.analysis import labels_option, profile_argument
from stepscope.cli.memory import memory_option
from stepscope.cli.output import Target
from stepscope.errors import BadInput, GateFailed
from stepscope.model.result import Result
from stepscope.render import FORMATS
from stepscope.verify import expected_of, together, verify

DESCRIPTION = """Is a capture any good: all ranks, exactly the profiled steps, steady, nothing lost?

Exit status 1 with the list of what to fix where a check failed. What the capture was meant to be comes from the
manifest that `capture run` puts beside it, and from the options."""


def check(
    paths: list[str], *, nsys: str | None = None, max_size: str = "200MB", against: Path | None = None,
    cache: bool = True, labels: str | None = None, **known: Any,
) -> Result:  # fmt: skip
    """The result of all checks; `GateFailed` where one failed. Of two profilers, each has its own capture checked."""
    first = api.open(*paths, nsys=nsys, cache=cache, labels=labels)
    given = {k: v for k, v in known.items() if v is not None} | {"max_size": parse_size(max_size)}
    if against is not None:
        times = _unprofiled(against)
        given |= {"unprofiled_ns": median(times), "unprofiled_times": times}
    folders = [Path(p) for p in paths if Path(p).is_dir()]
    results: dict[str, Result] = {}
    failed: GateFailed | None = None
    captures = {next(iter(first.captured), ""): first} | {name: opened() for name, opened in first.others.items()}
    for name, profile in captures.items():
        questions.need_timeline(profile, "capture verify")
        around = [*folders, *(p.parent for p in profile.paths)]
        try:
            results[name] = verify(profile, profile.paths, expected_of(around, BACKEND_OF.get(name), **given))
        except GateFailed as error:
            failed = failed or error
            results[name] = error.result
    result = together(results)
    if failed is not None:
        raise GateFailed(failed.message, failed.hint, result)
    return result


def _unprofiled(folder: Path) -> list[float]:
    """The unprofiled steps of another run."""
    other = manifest.read(folder)
    found = step_times.unprofiled_times(other) if other else []
    if not found:
        raise BadInput(f"--against {folder}: no times of unprofiled steps in it", "name a folder of capture run")
    return found


def _verify(profile: tuple[str, ...], **given: Any) -> None:
    target = Target.of(given.pop("output"), given.pop("format"))
    cache = not given.pop("no_cache")
    with progress.shown():
        try:
            result = check(list(profile), cache=cache, **given)
        except GateFailed as failed:
            target.write(failed.result)
            raise
    target.write(result)


command = click.Command(
    "verify",
    callback=_verify,
    help=DESCRIPTION,
    params=[
        profile_argument(),
        click.Option(["--ranks"], type=int, help="Ranks that there should be; by default the manifest's."),
        click.Option(["--steps"], type=int, help="Steps that there should be; by default the manifest's."),
        click.Option(["--max-size"], default="200MB", metavar="SIZE", help="Budget of one file."),
        click.Option(
            ["--against"],
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="An unprofiled run to compare steps with.",
        ),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        labels_option(),
        memory_option(),
        click.Option(["--format"], type=click.Choice(FORMATS), help="Format of the answer."),
        click.Option(["-o", "--output"], metavar="FILE", help="File to write the answer to."),
    ],
    context_settings={"show_default": True},
)

"""Is a capture any good: all ranks, exactly the profiled steps, steady, nothing lost?

Exit status 1 with the list of what to fix where a check failed. What the capture was meant to be comes from the
manifest that `capture run` puts beside it, and from the options.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated, Any

from stepscope import api, questions
from stepscope.capture import manifest, step_times
from stepscope.capture.size import parse_size
from stepscope.capture.spec import BACKEND_OF
from stepscope.cli import progress
from stepscope.cli.declare import command_of
from stepscope.cli.output import Target
from stepscope.cli.shared import AnyFormat, Labels, MaxSize, Memory, NoCache, Nsys, Profiles
from stepscope.errors import BadInput, GateFailed
from stepscope.model.option import Shell
from stepscope.model.result import Result
from stepscope.verify import expected_of, together, verify


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
    times = step_times.unprofiled_times(other) if other else []
    if not times:
        raise BadInput(f"--against {folder}: no times of unprofiled steps in it", "name a folder of capture run")
    return times


def _verify(
    profile: Profiles,
    *,
    ranks: Annotated[int | None, "Ranks that there should be; by default the manifest's."] = None,
    steps: Annotated[int | None, "Steps that there should be; by default the manifest's."] = None,
    max_size: MaxSize = "200MB",
    against: Annotated[Path | None, "An unprofiled run to compare steps with.", Shell(metavar="DIR")] = None,
    nsys: Nsys = None,
    no_cache: NoCache = False,
    labels: Labels = None,
    memory: Memory = None,
    format: AnyFormat = None,
    output: Annotated[
        str | None, "File to write the answer to.", Shell(flags=("-o", "--output"), metavar="FILE")
    ] = None,
) -> None:
    target = Target.of(output, format)
    with progress.shown():
        try:
            result = check(
                list(profile), nsys=nsys, max_size=max_size, against=against, cache=not no_cache, labels=labels,
                ranks=ranks, steps=steps,
            )  # fmt: skip
        except GateFailed as failed:
            target.write(failed.result)
            raise
    target.write(result)


command = command_of(_verify)

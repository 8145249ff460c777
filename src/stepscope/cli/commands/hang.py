"""Why does this job hang: which rank, which call? From dumps of PyTorch's flight recorder.

DUMPS are files, folders or globs: pickles or JSON of one job, named by their rank (nccl_trace_rank_3). Beside them,
each optional: stacks of `py-spy dump --json` (stacks_rank_3.json), the job's log, `ncclras` output, dmesg. Pickles
are read without running anything. The answer names the kind of hang, the fewest ranks that explain the dumps and how
sure that is, both sides of the call with its line of Python, and the chain of who waits for whom.

Exit status 0 where it was answered, 1 with --fail-on hung where the job hangs, 3 where the dumps do not suffice.
`capture hang` collects dumps of a job that hangs right now; docs/hang.md is a guide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import click

from stepscope.cli import output, progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import AnyFormat
from stepscope.errors import GateFailed
from stepscope.model.option import Shell


def _hang(
    dumps: Annotated[tuple[str, ...], "", Shell(metavar="DUMPS...")],
    *,
    output_file: Annotated[
        str | None, "Write there; .html is a page with a picture.", Shell(flags=("-o", "--output"), metavar="FILE")
    ] = None,
    format: AnyFormat = None,
    fail_on: Annotated[Literal["hung"] | None, "Exit 1 where the job hangs."] = None,
) -> None:
    from stepscope.api import hanging

    page = output_file is not None and Path(output_file).suffix.lower() == ".html" and format is None
    file = output.writable(Path(str(output_file))) if page else None
    target = output.Target("md", file) if page else output.Target.of(output_file, format)
    with progress.shown():
        flight = hanging.open_dumps(*dumps)
        target.spare([Path(dump.path) for dump in flight.dumps])
        result = hanging.answer(flight)
    if page:
        target.deliver(hanging.page(flight, result).encode())
        click.echo(f"wrote {file}")
    else:
        target.write(result)
    if fail_on and result.summary["hung"]:
        raise GateFailed(result.summary["statement"], None, result)


command = command_of(_hang)

"""The profile for other tools: a Perfetto trace of all ranks, flows and findings on one clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stepscope.cli import output, progress
from stepscope.cli.analysis import profile_argument
from stepscope.errors import BadInput
from stepscope.model.units import size
from stepscope.model.visible import visible

#: As `stepscope.export.write.FORMS`: listing options must not import it.
_FORMS = ("perfetto",)
_THEN = {
    "perfetto": "open it at https://ui.perfetto.dev, which reads it in the browser and uploads nothing",
}


def _export(profile: tuple[str, ...], output_file: str, **given: Any) -> None:
    from stepscope import api
    from stepscope.export.write import form_of

    if output_file == "-":
        raise BadInput("-o -: an export is a file", "name one")
    path = Path(output_file)
    form_of(path, given["to"])  # before any work is done
    target = output.Target("table", output.writable(path))
    with progress.shown():
        opened = api.open(*profile, cache=not given["no_cache"], nsys=given["nsys"], taxonomy=given["taxonomy"])
        target.spare([*map(Path, profile), *opened.paths])
        made = opened.export(path, to=given["to"], rank=given["rank"], findings=given["findings"])
    print(f"{made.path}: {made.events:,} events, {size(made.bytes)}; {_THEN[made.form]}")
    for note in made.notes:
        print("note:", visible(note), file=sys.stderr)


command = click.Command(
    "export",
    callback=_export,
    params=[
        profile_argument(),
        click.Option(
            ["-o", "--output", "output_file"],
            required=True,
            metavar="FILE",
            help="Where to write: trace.pftrace. The ending says the form.",
        ),
        click.Option(["--to"], type=click.Choice(_FORMS), help="The form, whatever the file is called."),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(
            ["--findings/--no-findings"], default=True, help="A track of what `diagnose` finds, where it shows."
        ),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
    ],
    help="The profile for other tools: a Perfetto trace of all ranks, flows and findings on one clock.\n\n"
    "stepscope export traces/ -o job.pftrace writes Perfetto's own format: a group per rank with a track per stream "
    "and per thread, arrows from launches to kernels and between the ranks of a communication, counters, and the "
    "findings. docs/export.md describes what is in it.",
    context_settings={"show_default": True},
)

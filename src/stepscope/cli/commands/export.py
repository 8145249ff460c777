"""The profile for other tools: Perfetto, Chrome JSON, Parquet; whole, cut to a window, or anonymized."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stepscope.cli import output, progress
from stepscope.cli.analysis import profile_argument, window_options
from stepscope.cli.memory import memory_option
from stepscope.errors import BadInput
from stepscope.model.units import size
from stepscope.model.visible import visible

#: As `stepscope.export.write.FORMS`: listing options must not import it.
_FORMS = ("perfetto", "chrome", "parquet", "kineto")
_THEN = {
    "perfetto": "open it at https://ui.perfetto.dev, which reads it in the browser and uploads nothing",
    "chrome": "chrome://tracing and others read it; Perfetto shows more of a .pftrace",
    "parquet": "a folder with a file per table, for DuckDB, pandas and the like",
    "kineto": "the events as torch wrote them",
}


def _export(profile: tuple[str, ...], output_file: str, **given: Any) -> None:
    from stepscope import api
    from stepscope.api.options import WINDOW_KEYWORDS
    from stepscope.export.write import form_of

    if output_file == "-":
        raise BadInput("-o -: an export is a file", "name one")
    path = Path(output_file)
    form_of(path, given["to"])  # before any work is done
    target = output.Target("table", path)
    window = {k: given[k] for k in WINDOW_KEYWORDS if given[k] not in (None, False)}
    if window == {"index": "median"}:  # the default: no window, all that was captured
        window = {}
    with progress.shown():
        opened = api.open(*profile, cache=not given["no_cache"], nsys=given["nsys"], taxonomy=given["taxonomy"])
        target.spare([*map(Path, profile), *opened.paths])
        chosen = {k: given[k] for k in ("to", "rank", "findings", "anonymize")}
        made = opened.export(path, **chosen, **window)
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
            help="Where to write: job.pftrace, job.json.gz, job.parquet. The ending says the form.",
        ),
        click.Option(["--to"], type=click.Choice(_FORMS), help="The form, whatever the file is called."),
        click.Option(["--rank"], metavar="RANKS", help="Only these ranks: 0,3-5."),
        click.Option(["--anonymize"], is_flag=True, help="Pseudonyms for names, paths and hosts; figures stay."),
        *window_options(),
        click.Option(
            ["--findings/--no-findings"], default=True, help="A track of what `diagnose` finds, where it shows."
        ),
        click.Option(["--no-cache"], is_flag=True, help="Read the files again, and cache nothing."),
        click.Option(["--nsys"], metavar="PATH", help="The nsys that exports .nsys-rep files."),
        click.Option(["--taxonomy"], metavar="FILE", help="More rules for what is communication (TOML)."),
        memory_option(),
    ],
    help="The profile for other tools: Perfetto, Chrome JSON, Parquet; whole, cut to a window, or anonymized.\n\n"
    "stepscope export traces/ -o job.pftrace writes Perfetto's own format: a group per rank with a track per stream "
    "and per thread, arrows from launches to kernels and between the ranks of a communication, counters, and the "
    "findings, all on one clock. job.json(.gz) is Chrome JSON, job.parquet a folder with a file per table, and "
    "rank0.pt.trace.json(.gz) a torch trace, cut. With an option that chooses a window (--step, --index, --anchor …) "
    "only that is exported, with --rank only those ranks: small enough for an issue. Exports can be read back. "
    "docs/export.md describes what is in them.",
    context_settings={"show_default": True},
)

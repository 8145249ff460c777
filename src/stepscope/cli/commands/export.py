"""The profile for other tools: Perfetto, Chrome JSON, Parquet; whole, cut to a window, or anonymized.

stepscope export traces/ -o job.pftrace writes Perfetto's own format: a group per rank with a track per stream and per
thread, arrows from launches to kernels and between the ranks of a communication, counters, and the findings, all on one
clock. job.json(.gz) is Chrome JSON, job.parquet a folder with a file per table, and rank0.pt.trace.json(.gz) a torch
trace, cut. With an option that chooses a window (--step, --index, --anchor …) only that is exported, with --rank only
those ranks: small enough for an issue. Exports can be read back. docs/export.md describes what is in them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from stepscope.api.options import Window
from stepscope.cli import output, progress
from stepscope.cli.declare import command_of
from stepscope.cli.shared import Memory, NoCache, Nsys, Profiles, RankNumbers, Taxonomy
from stepscope.errors import BadInput
from stepscope.model.option import Shell
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


def _export(
    profile: Profiles,
    *,
    output_file: Annotated[
        str,
        "Where to write: job.pftrace, job.json.gz, job.parquet. The ending says the form.",
        Shell(flags=("-o", "--output"), metavar="FILE"),
    ],
    to: Annotated[str | None, "The form, whatever the file's ending.", Shell(one_of=_FORMS)] = None,
    rank: RankNumbers = None,
    anonymize: Annotated[bool, "Replace names, paths and hosts by pseudonyms; figures stay."] = False,
    window: Window,
    findings: Annotated[bool, "A track of what `diagnose` finds, where it shows."] = True,
    no_cache: NoCache = False,
    nsys: Nsys = None,
    taxonomy: Taxonomy = None,
    memory: Memory = None,
) -> None:
    from stepscope import api
    from stepscope.export.write import form_of

    if output_file == "-":
        raise BadInput("-o -: an export is a file", "name one")
    path = Path(output_file)
    form_of(path, to)  # before any work is done
    target = output.Target("table", path)
    with progress.shown():
        opened = api.open(*profile, cache=not no_cache, nsys=nsys, taxonomy=taxonomy)
        target.spare([*map(Path, profile), *opened.paths])
        made = opened.export(path, to=to, rank=rank, findings=findings, anonymize=anonymize, **window)
    print(f"{made.path}: {made.events:,} events, {size(made.bytes)}; {_THEN[made.form]}")
    for note in made.notes:
        print("note:", visible(note), file=sys.stderr)


command = command_of(_export)

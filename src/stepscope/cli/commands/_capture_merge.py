"""Merge the folders of several nodes or profilers into one capture.

Reports of every node, traces of every rank, logs, and one manifest of them all. Files are linked where the disk is the
same, so that it takes no space. Every command takes the folder. Of nsys and torch.profiler, each has a folder within
it, as `capture run --backend both` leaves them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from stepscope.cli.declare import command_of
from stepscope.cli.shared import Profiles
from stepscope.model.option import Shell
from stepscope.model.statement import several
from stepscope.model.units import size


def _merge(
    profile: Profiles,
    *,
    output: Annotated[str, "The folder to make.", Shell(flags=("-o", "--output"), metavar="DIR")],
) -> None:
    from stepscope import api
    from stepscope.capture.gather import gather
    from stepscope.capture.spec import BACKEND_OF

    opened = api.open(*profile)  # refuses a rank that is there twice
    captures = {BACKEND_OF.get(next(iter(opened.captured), ""), ""): opened.paths}
    captures |= {BACKEND_OF[name]: other().paths for name, other in opened.others.items()}
    made = gather(captures, Path(output))
    for paths in made.values():
        for path in paths:
            click.echo(f"{path}  {size(path.stat().st_size)}")
    ranks = several(opened.ranks.height, "rank")
    click.echo(f"{ranks} in {several(sum(map(len, made.values())), 'file')}; next: stepscope diagnose {output}")


command = command_of(_merge)

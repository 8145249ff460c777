"""What changed from one run to another, what is the change made of, and is it more than noise?"""

from __future__ import annotations

from typing import Any

import click

from stepscope.cli import output, progress
from stepscope.cli.commands._compare_options import (
    BASE,
    ToTheEnd,
    opening,
    opening_options,
    sides_of,
    spare,
    step_options,
    target_options,
)
from stepscope.errors import GateFailed

DESCRIPTION = """What changed from one run to another, what is the change made of, and is it more than noise?

First, what else differs between the sides: GPU, mesh, shapes, software, capture. Then the median step of both, and
the difference split into parts (or by stage, rank, kernel family or kernel), which sum to it; a 95 % interval for each;
and a verdict: faster, slower, no difference, or cannot tell. A step lasts to the first op of the next one.

Files of a side are the ranks of one run. Where a rank occurs twice they are repeated runs: one per folder, or per file.
With several runs, runs are compared, not steps. docs/compare.md says more."""


def _compare(base: tuple[str, ...], to: tuple[str, ...], **given: Any) -> None:
    from stepscope import api

    target = output.Target.of(given.pop("output"), given.pop("format"))
    given = opening(given)
    first, second = sides_of(base, to)
    for side in (first, second):  # apart: a file may be on both
        spare(side, target)
    with progress.shown():
        try:
            result = api.compare(first, second, **given)
        except GateFailed as failed:
            target.write(failed.result)
            raise
    target.write(result)


command = ToTheEnd(
    "compare",
    callback=_compare,
    help=DESCRIPTION,
    params=[
        BASE,
        click.Option(
            ["--to"], multiple=True, metavar="NEW...", help="The other side: all that follows, up to an option."
        ),
        click.Option(
            ["--by"],
            type=click.Choice(["part", "stage", "rank", "family", "kernel"]),
            default="part",
            help="What a row is.",
        ),
        click.Option(["--top"], type=int, default=20, help="Families or kernels to show; 0 for all."),
        click.Option(
            ["--margin"],
            type=float,
            default=3.0,
            metavar="PERCENT",
            help="Say `no difference` only where a change beyond this would have been seen.",
        ),
        click.Option(
            ["--gate"],
            is_flag=True,
            help="Exit 1 where the step is over 2 % slower, or that cannot be told (see `gate`).",
        ),
        *step_options(),
        *opening_options(),
        *target_options(),
    ],
    context_settings={"show_default": True},
)

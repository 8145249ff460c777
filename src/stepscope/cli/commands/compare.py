"""What changed from one run to another, what is the change made of, and is it more than noise?

First, what else differs between the sides: GPU, mesh, shapes, software, capture. Then the median step of both, and
the difference split into parts (or by stage, rank, kernel family or kernel), which sum to it; a 95 % interval for each;
and a verdict: faster, slower, no difference, or cannot tell. A step lasts from the end of the one before to its own.

Files of a side are the ranks of one run. Where a rank occurs twice they are repeated runs: one per folder, or per file.
With several runs, runs are compared, not steps. docs/compare.md says more.
"""

from __future__ import annotations

from typing import Annotated

from stepscope.api.comparing import By
from stepscope.cli import progress
from stepscope.cli.commands._compare_options import (
    Base,
    Steps,
    To,
    ToTheEnd,
    chosen,
    sides_of,
    spare,
)
from stepscope.cli.declare import command_of
from stepscope.cli.shared import Output, Reading, Workers
from stepscope.errors import GateFailed
from stepscope.model.option import Shell


def _compare(
    base: Base,
    *,
    to: To = (),
    by: Annotated[By, "What a row is."] = "part",
    top: Annotated[int, "Families or kernels to show; 0 for all."] = 20,
    margin: Annotated[
        float, "Say `no difference` only where a change beyond this would have been seen.", Shell(metavar="PERCENT")
    ] = 3.0,
    gate: Annotated[bool, "Exit 1 if the step is over 2 % slower, or if that cannot be decided (see `gate`)."] = False,
    steps: Steps,
    workers: Workers,
    reading: Reading,
    output: Output,
) -> None:
    from stepscope import api

    target = output.target
    first, second = sides_of(base, to)
    for side in (first, second):  # apart: a file may be on both
        spare(side, target)
    with progress.shown():
        try:
            how = chosen(steps, workers, reading)
            result = api.compare(first, second, by=by, top=top, margin=margin, gate=gate, **how)
        except GateFailed as failed:
            target.write(failed.result)
            raise
    target.write(result)


command = command_of(_compare, cls=ToTheEnd)

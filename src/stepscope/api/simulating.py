"""A simulated job as a profile: to try things on, with a fault or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepscope.api.opening import open as opened
from stepscope.api.profile import Profile
from stepscope.errors import BadInput, meant_of
from stepscope.files import temporary
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


def simulate(
    folder: str | Path | None = None, *, fault: str | Sequence[str] = (), written: str = "nsys", **job: Any
) -> Profile:
    """A job that never ran, opened: `stepscope.simulate(dp=4, pp=1, ep=1, fault="straggler:rank=3,factor=1.5")`.

    `fault` takes what `stepscope simulate --fault` takes, one or a list; `written` is `"nsys"` or `"kineto"`; the other
    keywords are the options of that command, with underscores. Its files go into `folder`, else into a temporary one
    that is gone with the process. `truth.json` beside them has the answers that every command must give.
    """
    settable = [field.name for field in dataclasses.fields(Scenario) if field.name != "faults"]
    if unknown := [name for name in job if name not in settable]:
        raise BadInput(f"simulate: no option {unknown[0]!r}", meant_of(unknown[0], ["fault", *settable, "written"]))
    faults = (fault,) if isinstance(fault, str) else tuple(fault)
    place = Path(folder) if folder is not None else temporary.temporary_folder() / "job"
    simulate_to(Scenario(faults=faults, **job), place, (written,))
    return opened(place, cache=folder is not None)

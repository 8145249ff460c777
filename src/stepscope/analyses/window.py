"""Which stretch of time the other commands look at, on every rank.

A window is chosen on the host; its GPU window is that of what was *launched* in it, wherever the GPU got to it. Run
this first when a figure surprises: the GPU often lags the host by more than a step. A step is its period, from the end
of the step before it to its own end. Where the trainer marks chunks, the median chunk is shown, as `overlap` takes it;
`--step` shows the step, as all other questions take it.
"""

from __future__ import annotations

from typing import Annotated

from stepscope.derive.comm.outside import outside_notes
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.model.profile import Profile
from stepscope.model.result import Placed, Result, rows


class Row(Placed):
    ops: Annotated[int, "GPU ops in it"]


def window(profile: Profile, window: WindowSpec) -> Result:
    chosen = windows(profile, window, "chunk")
    table = [{**w.row(), "ops": len(w.ops)} for w in chosen.spans]
    return Result(rows(Row, table), chosen.rows(), notes=[*chosen.notes, *outside_notes(profile, chosen)])

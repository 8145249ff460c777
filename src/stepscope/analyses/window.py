"""Which stretch of time the other commands look at, on every rank.

A window is chosen on the host; its GPU window is that of what was *launched* in it, wherever the GPU got to it. Run
this first when a figure surprises: the GPU often lags the host by more than a step. A step is its period, from the end
of the step before it to its own end. Where the trainer marks chunks, the median chunk is shown, as `overlap` takes it;
`--step` shows the step, as all other questions take it.
"""

from __future__ import annotations

from stepscope.derive.comm.outside import outside_notes
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.model.profile import Profile
from stepscope.model.result import Col, Result, rows

COLUMNS = (
    Col("rank", "rank of the process"),
    Col("pid", "process id on its host"),
    Col("label", "text of the anchor range"),
    Col("index", "which instance, by start"),
    Col("count", "how many instances there are"),
    Col("cpu_start_ns", "start on the host; of a step, the end of the one before it"),
    Col("cpu_end_ns", "end on the host"),
    Col("gpu_start_ns", "first start of an op launched in it; of a step, the end of all that was launched before"),
    Col("gpu_end_ns", "last end of an op launched in it"),
    Col("ops", "GPU ops in it"),
)


def window(profile: Profile, window: WindowSpec) -> Result:
    chosen = windows(profile, window, "chunk")
    table = [{**w.row(), "ops": len(w.ops)} for w in chosen.spans]
    return Result(rows(COLUMNS, table), chosen.rows(), notes=[*chosen.notes, *outside_notes(profile, chosen)])

"""The measurement changes what it measures: a synchronization behind every block, timers that wait for the GPU.

Block timers that synchronize destroy the overlap that they are meant to time: shares of such a profile say where time
goes, its lengths and its overlap say nothing of the real run. That is true whatever else is found, so the finding is
shown even where it could give nothing back. What it could give back is the step replayed without those waits.
"""

from __future__ import annotations

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty, stage_of, sure
from stepscope.findings.evidence.measurement import measured
from stepscope.findings.evidence.places import longest
from stepscope.findings.finding import Finding
from stepscope.model.units import about

ID = "profiler-distortion"


def remedy(case: Case) -> Change:
    """No such waits."""
    return Change(calls_not_waiting={r: m.calls for r, m in case.once(measured).items()})


def detect(case: Case) -> list[Finding]:
    waits = case.once(measured)
    if not waits:
        return []
    ranks = guilty({r: float(len(m.calls)) for r, m in waits.items()})
    worst = max(ranks, key=lambda r: (len(waits[r].calls), -r))
    most = waits[worst]
    n = round(len(most.calls))
    return [
        Finding(
            ID,
            f"this profile is attribution only: {n:,} synchronizations, one behind {most.behind}, destroy overlap",
            case.credit(ID),
            sure(case),
            f"on rank {worst} they take {about(most.host.length(most.calls))} of the step; with the host "
            "waiting each time, nothing can be launched ahead and no communication can run beside compute: shares of "
            "time hold, lengths and overlap do not",
            "time blocks with CUDA events (torch.cuda.Event(enable_timing=True)) or with ranges alone, and profile "
            "again before judging overlap, launches or bubbles",
            ("idle", "--by cause"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in waits[r].host.longest(waits[r].calls)),
            covers={r: m.host.gaps_of(m.calls) for r, m in waits.items()},
            warns=True,
        )
    ]

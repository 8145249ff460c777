"""Python's garbage collector stops the host, and the GPU runs out of work.

torch.profiler records it (`record_python_gc_info`), and programs name it in ranges of their own. What it could give
back is the step replayed without those pauses. Where a trace records neither, nothing can be said.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, longest, places, stage_of, sure
from stepscope.findings.finding import Finding
from stepscope.findings.words import ms
from stepscope.intervals import Spans, union

ID = "gc-pause"

#: What ranges around a collection are called.
_NAMES = r"(?i)(^|[^a-z])(gc|python[ _]?gc|gc[._ ]?collect\w*|garbage[ _-]?collect\w*)([^a-z]|$)"


def detect(case: Case) -> list[Finding]:
    found = {r: (h, s) for r, h in hosts(case).items() if len(s := _pauses(h))}
    if not found:
        if not any(h.data.host.height or len(h.data.own_ranges) for h in hosts(case).values()):
            raise CannotAnswer(
                "nothing recorded says what Python did",
                "capture with torch.profiler, or name collections with a range (gc.callbacks)",
            )
        return []
    lost = {r: h.idle_in(s) for r, (h, s) in found.items()}
    if not case.material(max(lost.values())):
        return []
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    _, pauses = found[worst]
    return [
        Finding(
            ID,
            f"Python's garbage collector stops the host ({len(pauses)} times on rank {worst})",
            case.saved(Change(host_time_cut={r: s for r, (_, s) in found.items()})),
            sure(case),
            f"collections take {ms(pauses.length() / case.steps)} of the step on rank {worst}, the longest "
            f"{ms(float((pauses.end - pauses.start).max()))}; the GPU has nothing to do for "
            f"{ms(lost[worst] / case.steps)} of it",
            "gc.freeze() after set-up, gc.disable() in the loop and gc.collect() every so many steps on all ranks at "
            "once: ranks that collect at different times make each other wait",
            ("idle", "--by range"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, found[r][1].start, found[r][1].end)),
        )
    ]


def _pauses(host: Host) -> Spans:
    """Collections within the step, from torch's records and from ranges."""
    data = host.data
    records = data.host.filter(data.host["kind"] == "gc")
    ranges = data.ranges[data.own_ranges]
    named = host.profile.names.str.contains(_NAMES)
    ranges = ranges.filter(named.gather(ranges["name"]))
    start, end = (np.concatenate([f[c].to_numpy() for f in (records, ranges)]) for c in ("start_ns", "end_ns"))
    return union(start, end).clip(host.begin, host.end)

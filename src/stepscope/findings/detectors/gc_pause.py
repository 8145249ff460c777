"""Python's garbage collector stops the host, and the GPU runs out of work.

torch.profiler records it (`record_python_gc_info`), and programs name it in ranges of their own. What it could give
back is the step replayed without those pauses. Where a trace records neither, nothing can be said.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of, sure
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, union
from stepscope.model.capturing import capture_by
from stepscope.model.range_names import GARBAGE
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "gc-pause"


def _collections(case: Case) -> dict[int, Spans]:
    """By rank: when its host collected garbage."""
    return {r: pauses for r, h in hosts(case).items() if len(pauses := _pauses(h))}


def remedy(case: Case) -> Change:
    """No such pauses."""
    return Change(host_time_cut=case.once(_collections))


def detect(case: Case) -> list[Finding]:
    collections = case.once(_collections)
    if not collections:
        if not any(h.data.host.height or len(h.data.own_ranges) for h in hosts(case).values()):
            raise CannotAnswer(
                "nothing recorded says what Python did",
                f"{capture_by('--backend torch --with stacks')}, or name collections with a range (gc.callbacks)",
            )
        return []
    lost = {r: hosts(case)[r].idle_in(pauses) for r, pauses in collections.items()}
    if not case.material(max(lost.values())):
        return []
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    pauses = collections[worst]
    saved = case.credit(ID)
    idle, figures, command = lost_by(case, hosts(case)[worst], *LATE, claim=max(lost[worst], saved))
    return [
        Finding(
            ID,
            title("gc-pause", times=several(len(pauses), "time"), worst=worst),
            saved,
            sure(case),
            f"collections take {about(pauses.length())} of the step on rank {worst}, the longest "
            f"{about(float((pauses.end - pauses.start).max()))}; the GPU idles for "
            f"{about(lost[worst])} of that time; in all it idles for {idle}",
            advice("gc-pause"),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, collections[r].start, collections[r].end)),
            covers={r: hosts(case)[r].gaps_touched(s.start, s.end) for r, s in collections.items()},
        )
    ]


def _pauses(host: Host) -> Spans:
    """Collections within the step, from torch's records and from ranges."""
    data = host.data
    records = data.host.filter(data.host["kind"] == "gc")
    ranges = data.ranges[data.own_ranges]
    ranges = ranges.filter(pl.Series(host.profile.names_with(GARBAGE)[ranges["name"].to_numpy()]))
    start, end = (np.concatenate([f[c].to_numpy() for f in (records, ranges)]) for c in ("start_ns", "end_ns"))
    return union(start, end).clip(host.begin, host.end)

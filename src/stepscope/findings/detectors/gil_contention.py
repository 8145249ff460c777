"""The thread that launches waits for Python's lock (GIL), which another thread has, and the GPU runs out of work.

nsys records it (`--trace=python-gil`). What it could save is the step replayed without those waits. A trace
without it says nothing of locks: few are recorded with it, and no other record tells a wait for it from the host's own
work, so that nothing is said of it there.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.host.gil import HOLDING, WAITING, lock_ranges
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of, sure
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, intersect, union
from stepscope.model.statement import percent, several
from stepscope.model.units import about

ID = "gil-contention"


def _waits(case: Case) -> dict[int, Spans]:
    """By rank: when a thread that launches waited for the lock."""
    return {r: waits for r, h in hosts(case).items() if len(waits := _of_host(h))}


def remedy(case: Case) -> Change:
    """No such waits."""
    return Change(host_time_cut=case.once(_waits))


def detect(case: Case) -> list[Finding]:
    waits = case.once(_waits)
    lost = {r: hosts(case)[r].idle_in(spans) for r, spans in waits.items()}
    if not lost or not case.material(max(lost.values())):
        return []
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    saved = case.credit(ID)
    idle, figures, command = lost_by(case, hosts(case)[worst], *LATE, claim=max(lost[worst], saved))
    return [
        Finding(
            ID,
            title("gil-contention", times=several(len(waits[worst]), "time"), worst=worst),
            saved,
            sure(case),
            f"it waits for {about(waits[worst].length())} of the step on rank {worst}, and the GPU idles "
            f"for {about(lost[worst])} of that{_holder(hosts(case)[worst], waits[worst])}; in all the GPU idles for "
            f"{idle}",
            advice("gil-contention"),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in places(r, waits[r].start, waits[r].end)),
            covers={r: hosts(case)[r].gaps_touched(s.start, s.end) for r, s in waits.items()},
        )
    ]


def _of_host(host: Host) -> Spans:
    """Within the step, of the threads that make CUDA calls in it, while no other thread makes one: while autograd's
    launches the backward pass, the thread that called for it holds up nothing."""
    waits = lock_ranges(host.data, WAITING)
    if waits.height == 0:
        return Spans.empty()
    calls = host.calls[np.argsort(host.start[host.calls], kind="stable")]
    threads, begun = host.data.calls["tid"].to_numpy()[calls], host.start[calls]
    start, end = waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy()
    made = np.searchsorted(begun, end) - np.searchsorted(begun, start)
    alone = np.zeros(waits.height, dtype=bool)
    for thread in np.unique(threads):
        own = begun[threads == thread]
        mine = (waits["tid"] == thread).to_numpy()
        alone |= mine & (made == np.searchsorted(own, end) - np.searchsorted(own, start))
    return union(start[alone], end[alone]).clip(host.begin, host.end)


def _holder(host: Host, waits: Spans) -> str:
    """The thread that holds the lock for most of these waits."""
    held = lock_ranges(host.data, HOLDING)
    by_thread = {
        tid: intersect(union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()), waits).length()
        for (tid,), rows in held.group_by("tid", maintain_order=True)
    }
    if not by_thread or not max(by_thread.values()):
        return ""
    thread = max(by_thread, key=lambda tid: (by_thread[tid], tid))
    return f"; thread {thread} holds the lock for {percent(by_thread[thread], waits.length())} of that time"

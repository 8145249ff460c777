"""The GPU waits for input: the host is still fetching the next batch.

Ranges and annotations that name it (`data`, `next batch`, `enumerate(DataLoader)…`) say when the host was getting
input; where a trace has none, it is the time before the next copy from the host, unless all ranks of one host are late
together (`late-node`). What it could give back is the step replayed without that time.
"""

from __future__ import annotations

import numpy as np

from stepscope.analyses._change import Change
from stepscope.analyses._lateness import data_ranges, host_late
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.hosts import Host, guilty, hosts, longest, places, slow_hosts, sure
from stepscope.findings.words import ms
from stepscope.intervals import Spans

ID = "data-stall"

#: What a loader that keeps ahead may take of the host, per step: handing over a batch that is there.
_USUAL_NS = 200_000


def detect(case: Case) -> list[Finding]:
    fetching: dict[int, tuple[Host, Spans, bool]] = {}
    for rank, host in hosts(case).items():
        spans, named = _fetching(host)
        spans = spans.clip(host.begin, host.end)
        if host.idle_in(spans):
            fetching[rank] = host, spans, named
    if not fetching or _late_together(case, fetching):
        return []
    lost = {r: h.idle_in(s) for r, (h, s, _) in fetching.items()}
    if not case.material(max(lost.values()) - _USUAL_NS * case.steps):
        return []
    # A slow host is slow in fetching too: only what remains at the usual pace is the loader's.
    beside, alike = slow_hosts(case)
    pace = {r: beside.get(r, 1.0) * alike.get(r, 1.0) for r in {*beside, *alike}}
    cut = {r: s for r, (_, s, _) in fetching.items()}
    saved = case.saved(Change(cut=cut, host=pace))
    if pace:
        saved = max(saved - case.saved(Change(host=pace)), 0)
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    host, spans, named = fetching[worst]
    said = "in ranges that name it" if named else "before the copy of the next batch"
    return [
        Finding(
            ID,
            "the GPU waits for input" + ("" if len(ranks) == len(case.ranks) else f" on rank {worst}"),
            saved,
            sure(case) if named else "medium",
            f"the host of rank {worst} spends {ms(spans.length() / case.steps)} of the step getting input ({said}); "
            f"the GPU has nothing to do for {ms(lost[worst] / case.steps)} of it",
            "fetch ahead: more DataLoader workers, prefetch_factor, pin_memory with non_blocking copies; move decoding "
            "and tokenizing out of the loop; check the file system it reads from",
            ("idle", "--by range --period" if named else "--by range"),
            ranks=ranks,
            where=longest(p for r in ranks for p in places(r, fetching[r][1].start, fetching[r][1].end)),
        )
    ]


def _fetching(host: Host) -> tuple[Spans, bool]:
    """When the host was getting input, and whether ranges say so."""
    named = data_ranges(host.profile, host.data)
    if len(named):
        return named, True
    return host_late(host.profile, host.data)[1], False


def _late_together(case: Case, fetching: dict[int, tuple[Host, Spans, bool]]) -> bool:
    """Without ranges that name it: whether all ranks of some hosts, not of all, are late. That is the host's fault."""
    if any(named for _, _, named in fetching.values()):
        return False
    try:
        table = case.ask("stragglers").rows
    except CannotAnswer:
        return False
    late = {r for r, cause in table.select("rank", "cause").iter_rows() if cause == "host"}
    by_host: dict[str, set[int]] = {}
    for rank, machine in table.select("rank", "host").iter_rows():
        by_host.setdefault(machine, set()).add(rank)
    whole = [ranks <= late for ranks in by_host.values() if len(ranks) > 1]
    return bool(np.any(whole)) and not bool(np.all(whole))

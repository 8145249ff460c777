"""Kernels that are hardly longer than it takes to launch them: the GPU runs from one launch to the next.

Looked at are stretches of kernels that the host launched one after the other on one stream, with nothing between them
that must be apart (no event, no synchronization, no communication). Where their mean is shorter than twice the usual
time of a launch, the stretch is replayed as if it were one launch, as a CUDA graph is, and without gaps between kernels
of one name, as one larger kernel would be. A host that takes unusually long per launch is another fault (launch-bound).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analyses._causes import API, call_causes
from stepscope.analyses._change import Change
from stepscope.analyses._rank import COMPUTE
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding, Place
from stepscope.findings.hosts import PLACES, USUAL_PACE_NS, Host, guilty, hosts, longest, slow_hosts, stage_of
from stepscope.findings.words import ms, us
from stepscope.intervals import Spans, union
from stepscope.model.nesting import NONE

ID = "tiny-kernels"
I64 = npt.NDArray[np.int64]

#: A stretch of kernels is tiny if its mean is below so much.
TINY_NS = 2 * USUAL_PACE_NS
#: Fewer kernels in a row are not worth fusing.
_LEAST = 4
#: Calls that keep launches before and after them apart.
_APART = r"(?i)event(record|wait)|waitevent|graphlaunch|streambegincapture|streamendcapture"


class _Stretches:
    """Of one rank: kernels of tiny stretches, and the host time of their launches but the first."""

    def __init__(self, host: Host) -> None:
        data, calls = host.data, host.data.calls
        ops = np.flatnonzero((data.launch != NONE) & (data.start >= host.begin) & (data.start < host.end))
        ops = ops[np.lexsort((ops, data.launch[ops]))]
        ops = ops[np.r_[True, np.diff(data.launch[ops]) > 0]] if len(ops) else ops  # graphs: one launch of many
        tid = calls["tid"].cast(pl.Int64).fill_null(NONE).to_numpy()
        of_thread = tid[data.launch[ops]]
        by_thread = np.lexsort((data.launch[ops], of_thread))
        ops, of_thread = ops[by_thread], of_thread[by_thread]
        launch, kernel = data.launch[ops], data.role[ops] == COMPUTE
        # Calls that part what lies around them, per thread: how many there are before each launch.
        names = host.profile.names.str.contains(_APART).to_numpy()[calls["name"].to_numpy()]
        parting = (call_causes(data) != API) | names
        before = np.zeros(len(ops), np.int64)
        for thread in np.unique(of_thread).tolist():
            mine = of_thread == thread
            before[mine] = np.searchsorted(np.flatnonzero(parting & (tid == thread)), launch[mine])
        first = np.ones(len(ops), dtype=bool)
        if len(ops) > 1:
            same = (of_thread[1:] == of_thread[:-1]) & (data.stream[ops][1:] == data.stream[ops][:-1])
            first[1:] = ~(same & (before[1:] == before[:-1]) & kernel[1:] & kernel[:-1])
        at = np.flatnonzero(first)
        count = np.diff(np.r_[at, len(ops)])
        dur = data.end[ops] - data.start[ops]
        total = np.add.reduceat(dur, at) if len(at) else at
        tiny = (count >= _LEAST) & (total < TINY_NS * count) & kernel[at] if len(at) else np.zeros(0, dtype=bool)
        inside = np.repeat(tiny, count)
        self.host = host
        self.kernels = ops[inside]
        # A kernel that follows one of its own name could be part of it; between others a gap stays, in a graph too.
        again = np.r_[False, data.name[ops][1:] == data.name[ops][:-1]] if len(ops) else first
        self.fused = ops[inside & ~first & again]
        last = np.r_[at[1:], len(ops)] - 1
        self.cut: Spans = union(host.stop[launch[at[tiny]]], host.stop[launch[last[tiny]]])
        self.count = int(tiny.sum())
        self.mean_ns = float(dur[inside].mean()) if len(self.kernels) else 0.0
        self._begin, self._end = data.start[ops[at[tiny]]], data.end[ops[last[tiny]]]

    def bound(self) -> int:
        """No more than this can come of fusing them: all time of their launches, and all gaps."""
        return int((self._end - self._begin).sum())

    def places(self) -> list[Place]:
        order = np.argsort(self._begin - self._end, kind="stable")[:PLACES]
        rank, data = self.host.data.rank, self.host.data
        stream = int(data.stream[self.kernels[0]]) if len(self.kernels) else None
        return [Place(rank, int(self._begin[i]), int(self._end[i]), stream) for i in order.tolist()]


def _found(case: Case) -> dict[int, _Stretches]:
    """By rank whose host launches as it should: its tiny stretches, if they can matter."""
    beside, alike = slow_hosts(case)
    slow = {*beside, *alike}
    found = {r: s for r, h in hosts(case).items() if r not in slow and len((s := _Stretches(h)).kernels)}
    return found if case.material(max((s.bound() for s in found.values()), default=0)) else {}


def fuse(case: Case) -> Change:
    """Tiny kernels launched together; nothing where there are none."""
    found = case.once(_found)
    return Change(fused={r: s.fused for r, s in found.items()}, cut={r: s.cut for r, s in found.items()})


def detect(case: Case) -> list[Finding]:
    found = case.once(_found)
    if not found:
        return []
    saved = case.saved(fuse(case))
    ranks = guilty({r: len(s.kernels) for r, s in found.items()})
    worst = max(ranks, key=lambda r: (len(found[r].kernels), -r))
    mine = found[worst]
    pace = mine.host.pace_ns
    launched = f"; a launch takes {us(pace)} of host time" if pace is not None else ""
    return [
        Finding(
            ID,
            f"{len(mine.kernels) // case.steps:,} kernels of {us(mine.mean_ns)} are hardly longer than their launch",
            saved,
            "high" if saved and pace is not None else "medium",
            f"on rank {worst} they come in {mine.count // case.steps:,} stretches that could each be one launch"
            f"{launched}; launches come late for {ms(mine.host.idle_ns('host', 'api') / case.steps)} of the step",
            "fuse them: CUDA graphs or torch.compile(mode='reduce-overhead') for the step, fused=True or foreach=True "
            "for the optimizer, larger micro-batches, a fused kernel for the row that `kernels` shows on top by count",
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in found[r].places()),
        )
    ]

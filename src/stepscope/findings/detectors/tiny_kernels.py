"""The same small kernel is launched many times in a row, where one launch would do.

Looked at are stretches of kernels that the host launched one after the other on one stream, with nothing between them
that must be apart (no event, no synchronization, no communication), and whose mean is below twice the usual time of a
launch. Where one kernel comes several times in a row in such a stretch, the step is replayed as if that were one launch
of one kernel. Short kernels of many kinds, and a host that takes long per launch, are another fault (launch-bound).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepscope.analyses._change import Change
from stepscope.analyses._rank import COMPUTE
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding, Place
from stepscope.findings.hosts import PLACES, Host, guilty, hosts, longest, stage_of
from stepscope.findings.launching import USUAL_PACE_NS, slow
from stepscope.findings.words import ms, us
from stepscope.intervals import Spans, union

ID = "tiny-kernels"
I64 = npt.NDArray[np.int64]

#: A stretch of kernels is tiny if its mean is below so much.
TINY_NS = 2 * USUAL_PACE_NS
#: Fewer kernels in a row are not worth fusing.
_LEAST = 4


class _Stretches:
    """Of one rank: repeated kernels of small stretches, and the host time of their launches but the first of each."""

    def __init__(self, host: Host) -> None:
        data = host.data
        ops, first = host.stretches
        launch = data.launch[ops]
        dur = data.end[ops] - data.start[ops]
        again = np.r_[False, data.name[ops][1:] == data.name[ops][:-1]] & ~first if len(ops) else first
        at = np.flatnonzero(~again)  # each run of one kernel begins
        count = np.diff(np.r_[at, len(ops)])
        small = _means(dur, first) < TINY_NS
        small |= _means(dur, ~again) < TINY_NS
        tiny = (count >= _LEAST) & small[at] & (data.role[ops[at]] == COMPUTE)
        inside = np.repeat(tiny, count)
        last = np.r_[at[1:], len(ops)] - 1
        self.host = host
        self.kernels = ops[inside]
        self.fused = ops[inside & again]
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


def _means(dur: I64, first: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """By kernel: the mean of the stretch that it is in."""
    at = np.flatnonzero(first)
    count = np.diff(np.r_[at, len(dur)])
    return np.repeat(np.add.reduceat(dur, at) / count, count) if len(at) else np.empty(0)


def _found(case: Case) -> dict[int, _Stretches]:
    """By rank whose host launches as it should: its tiny stretches, if they can matter."""
    which = slow(case)
    found = {
        r: s
        for r, h in hosts(case).items()
        if r not in {**which.beside, **which.machine} and len((s := _Stretches(h)).kernels)
    }
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
            f"{len(mine.kernels) // case.steps:,} kernels of {us(mine.mean_ns)} are launched where "
            f"{mine.count // case.steps:,} larger ones would do",
            saved,
            "high" if saved and pace is not None else "medium",
            f"on rank {worst} the same kernel comes {len(mine.kernels) / max(mine.count, 1):.0f} times in a row on "
            f"average{launched}; the GPU waits for launches for "
            f"{ms(mine.host.idle_ns('host', 'api') / case.steps)} of the step",
            "fuse them: fused=True or foreach=True for the optimizer, one batched op instead of a loop over slices, "
            "torch.compile, CUDA graphs for the step; `kernels` shows which kernel is launched most",
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in found[r].places()),
        )
    ]

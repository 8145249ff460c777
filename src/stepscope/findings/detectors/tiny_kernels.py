"""The same small kernel is launched many times in a row, where one launch would do.

Looked at are stretches of kernels that the host launched one after the other on one stream, with nothing between them
that must be apart (no event, no synchronization, no communication), and whose mean is below twice the usual time of a
launch. Where in such a stretch a kernel, or a pattern of a few kernels, comes several times in a row, the step is
replayed as if it came once, as long as all of them: one launch, no gaps. Short kernels of many kinds, and a host that
takes long per launch, are another fault (launch-bound), and so are small layers: products, convolutions or attention
with what lies between them are a pattern, too, but no one launch.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.replay.change import Change
from stepscope.derive.work.roles import kernels
from stepscope.derive.work.rules import Role
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, each_host, guilty, stage_of
from stepscope.findings.evidence.launching import slow_hosts, usual
from stepscope.findings.evidence.places import PLACES, longest
from stepscope.findings.evidence.shown import LATE, lost_by
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import advice, title
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import F64, I64, Mask, one_of
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

TINY = Threshold(
    2.0,
    "times the usual pace",
    "a kernel that long still leaves the host as much time again to get ahead",
    ("tests/findings/test_faults_host.py", "public/h100x2_before.sqlite", "tests/data/moe_reference"),
)
TINY_PATTERN = Threshold(
    12,
    "kernels",
    "AdamW in a loop over tensors launches eight for each, with amsgrad and maximize up to eleven",
    ("tests/data/promises", "public/puzzler_d2h_sync.json.gz", "public/dlrm8/dlrm_kineto"),
)
TINY_REPEATS = Threshold(
    3,
    "repeats in a row",
    "two of a kind come together by chance, as the halves of a layer do",
    ("tests/findings/test_thresholds.py::test_tiny_kernels_repeat", "tests/findings/test_healthy.py"),
)


ID = "tiny-kernels"


class _Stretches:
    """Of one rank: repeated kernels of small stretches, and the host time of their launches but the first of each."""

    def __init__(self, host: Host, tiny_ns: float) -> None:
        data = host.data
        ops, first = host.stretches
        launch = data.launch[ops]
        dur = data.end[ops] - data.start[ops]
        stretch = np.cumsum(first) - 1
        again = np.zeros(len(ops), dtype=bool)
        before = np.append(0, np.cumsum(dur))
        name, small = data.name[ops].astype(np.int64), _means(before, first) < tiny_ns
        landmark = kernels(data, ops).are(Role.PRODUCT, Role.CONVOLUTION, Role.ATTENTION)
        for period in range(1, int(TINY_PATTERN.value) + 1):
            repeats = _repeated(name, stretch, period, landmark)
            if not repeats.any():
                continue
            begins = ~repeats  # with its repeats: a run
            again |= repeats & (small | (_means(before, begins) < tiny_ns))
        again &= host.on_device[ops]
        rows = np.flatnonzero(again)
        self.host = host
        self.kernels = ops[again]
        self.fused = ops[again & np.r_[False, data.name[ops][1:] == data.name[ops][:-1]]] if len(ops) else ops
        self.cut: Spans = union(host.stop[launch[rows - 1]], host.stop[launch[rows]])
        self.mean_ns = float(dur[again].mean()) if len(rows) else 0.0
        runs = np.flatnonzero(again & ~np.r_[False, again[:-1]]) if len(ops) else rows
        ends = np.flatnonzero(again & ~np.r_[again[1:], False]) if len(ops) else rows
        self.count = len(runs)
        self._begin, self._end = data.start[ops[runs]], data.end[ops[ends]]

    def bound(self) -> int:
        """No more than this can come of fusing them: all time of their launches, and all gaps."""
        return self.cut.length() + int((self._end - self._begin).sum())

    def places(self) -> list[Place]:
        order = np.argsort(self._begin - self._end, kind="stable")[:PLACES]
        rank, data = self.host.data.rank, self.host.data
        stream = int(data.stream[self.kernels[0]]) if len(self.kernels) else None
        return [Place(rank, int(self._begin[i]), int(self._end[i]), stream) for i in order.tolist()]


def _repeated(name: I64, stretch: I64, period: int, landmark: Mask) -> Mask:
    """Kernels that are as the one `period` before them in their stretch, many in a row; without layers."""
    same = np.zeros(len(name), dtype=bool)
    same[period:] = (name[period:] == name[:-period]) & (stretch[period:] == stretch[:-period])
    edges = np.flatnonzero(np.diff(np.r_[False, same, False]))
    length = edges[1::2] - edges[::2]
    changes = np.zeros(len(name) + 1, dtype=np.int64)
    marks = np.r_[0, np.cumsum(landmark)]
    of_pattern = marks[np.minimum(edges[::2] + period, len(name))] - marks[edges[::2]]
    long = (length >= TINY_REPEATS.value * period) & one_of(of_pattern, (0, period))
    changes[edges[::2][long]] += 1
    changes[edges[1::2][long]] -= 1
    inside: Mask = np.cumsum(changes)[:-1] > 0
    return inside


def _means(before: I64, first: Mask) -> F64:
    """By kernel: the mean of the stretch that it is in; `before` is the time of those before it, and of all."""
    edges = np.append(np.flatnonzero(first), len(first))
    count = np.diff(edges)
    return np.repeat(np.diff(before[edges]) / count, count)


def _repeats(case: Case) -> dict[int, _Stretches]:
    """By rank whose host launches as it should: its tiny stretches, if they can matter."""
    which, tiny_ns = slow_hosts(case), TINY.value * usual(case).pace_ns
    slow = {**which.beside, **which.machine}
    found = each_host(case, lambda host: None if host.data.rank in slow else _Stretches(host, tiny_ns))
    stretches = {rank: of_rank for rank, of_rank in found.items() if of_rank is not None and len(of_rank.kernels)}
    return stretches if case.material(max((s.bound() for s in stretches.values()), default=0)) else {}


def remedy(case: Case) -> Change:
    """Tiny kernels launched together."""
    repeats = case.once(_repeats)
    return Change(
        ops_fused={r: s.fused for r, s in repeats.items()}, host_time_cut={r: s.cut for r, s in repeats.items()}
    )


def detect(case: Case) -> list[Finding]:
    repeats = case.once(_repeats)
    if not repeats:
        return []
    saved = case.credit(ID)
    ranks = guilty({r: len(s.kernels) for r, s in repeats.items()})
    worst = max(ranks, key=lambda r: (len(repeats[r].kernels), -r))
    most = repeats[worst]
    pace = most.host.pace_ns
    idle, figures, command = lost_by(case, most.host, *LATE, claim=saved)
    launched = f"; each launch costs {about(pace)} of host time" if pace is not None else ""
    return [
        Finding(
            ID,
            title("tiny-kernels", mean_ns=about(most.mean_ns), kernels=len(most.kernels)),
            saved,
            "certain" if saved and pace is not None else "likely",
            f"on rank {worst} the same few kernels recur, {len(most.kernels) / max(most.count, 1):,.0f} launches "
            f"in a row{' on average' if most.count > 1 else ''}{launched}; the GPU idles for {idle}",
            advice("tiny-kernels"),
            command,
            ranks=ranks,
            figures=figures,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in repeats[r].places()),
            covers={r: s.host.gaps_of(s.host.data.launch[s.kernels]) for r, s in repeats.items()},
        )
    ]

"""The GPU's clock is below what it reached elsewhere in the capture while it computes.

It takes sampled GPU metrics (`capture run --with gpu-metrics`; `clocks` with torch 2.15): the clock of the
multiprocessors. What it could give back is the step replayed with kernels as much faster as the clock could be; kernels
bound by memory gain less.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.kernel.sampled import CLOCK, POWER, megahertz, sampled
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, stage_of
from stepscope.findings.evidence.machines import on_amd
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import part
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals.arrays import F64, I64
from stepscope.model.capturing import capture_with
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

CLOCK_LOW = Threshold(
    95.0,
    "% of the highest clock",
    "an H200 under load stays within 0.2 of it in the median",
    ("h200/hf/hf1_rich.sqlite", "tests/findings/test_host_by_hand.py::test_a_clock_below_what_it_was"),
)


ID = "clock-throttling"


class _Throttled(Struct, frozen=True):
    """Kernels of one rank that ran at a lower clock, at which share of the highest, and that clock."""

    data: RankData
    ops: I64
    factor: F64
    highest: float

    @property
    def lost_ns(self) -> float:
        """What the clock costs, if all of them are bound by it."""
        return float(((1 - self.factor) * (self.data.end - self.data.start)[self.ops]).sum())


def _throttled(case: Case) -> dict[int, _Throttled]:
    """By rank; nothing where it cannot matter."""
    if not case.profile.has("counters"):
        raise _unknown()
    samples = case.profile.counters
    clocks = case.profile.names.str.contains(CLOCK).gather(samples["name"]) & (samples["value"] > 0)
    if not clocks.any():
        raise _unknown()
    slowed = {rank: _slowed(case, host) for rank, host in hosts(case).items()}
    throttled = {r: t for r, t in slowed.items() if t is not None}
    return throttled if case.material(int(max((t.lost_ns for t in throttled.values()), default=0.0))) else {}


def remedy(case: Case) -> Change:
    """Kernels as much faster as the clock could be."""
    return Change(op_factor={r: (t.ops, t.factor) for r, t in case.once(_throttled).items()})


def detect(case: Case) -> list[Finding]:
    throttled = case.once(_throttled)
    if not throttled:
        return []
    ranks = guilty({r: t.lost_ns for r, t in throttled.items()})
    worst = max(ranks, key=lambda r: (throttled[r].lost_ns, -r))
    slowest = throttled[worst]
    data, ops = slowest.data, slowest.ops
    compute = part(case, worst, "compute_ns")
    return [
        Finding(
            ID,
            title("clock-throttling", worst=worst),
            case.credit(ID),
            "certain",
            f"while kernels run, the clock is at {100 * float(np.median(slowest.factor)):.0f} % of the "
            f"{megahertz(slowest.highest):,.0f} MHz that it reaches in the capture; {len(ops):,} kernels, "
            f"{about(slowest.lost_ns)} of {about(compute)} of compute if all of them are bound by the clock"
            f"{_power(case, slowest)}",
            advice(
                "clock-throttling", tool="amd-smi metric" if on_amd(case, ranks) else "nvidia-smi -q -d PERFORMANCE"
            ),
            ("breakdown", f"--rank {worst}"),
            ranks=ranks,
            figures=(compute,),
            stage=stage_of(case, ranks),
            where=longest(places(worst, data.start[ops], data.end[ops])),
            bound=True,
        )
    ]


def _power(case: Case, slowest: _Throttled) -> str:
    """What the GPU draws meanwhile, where torch's CUPTI backend sampled it."""
    power = sampled(case.profile, slowest.data, POWER)
    if power is None:
        return ""
    drawn = power.mean(slowest.data.start[slowest.ops], slowest.data.end[slowest.ops])
    known = drawn[~np.isnan(drawn)]
    return f"; it draws {float(np.median(known)):,.0f} W meanwhile" if len(known) else ""


def _unknown() -> CannotAnswer:
    return CannotAnswer("the trace has no samples of the GPU's clock", capture_with("gpu-metrics"))


def _slowed(case: Case, host: Host) -> _Throttled | None:
    """Kernels that ran at a lower clock than the highest of the capture, on the mean over their time."""
    data = host.data
    clock = sampled(case.profile, data, CLOCK)
    if clock is None or len(clock.value) < 2:
        return None
    highest = float(np.quantile(clock.value[clock.value > 0], 0.99))
    ops = host.window.ops[data.role[host.window.ops] == COMPUTE]
    share = clock.mean(data.start[ops], data.end[ops]) / highest
    slow = (share > 0) & (share < CLOCK_LOW.share)
    return _Throttled(data, ops[slow], share[slow], highest) if slow.any() else None

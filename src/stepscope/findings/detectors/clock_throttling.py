"""The GPU's clock is below what it reached elsewhere in the capture while it computes.

It takes sampled GPU metrics (`nsys profile --gpu-metrics-devices=all`): the clock of the multiprocessors. What it could
give back is the step replayed with kernels as much faster as the clock could be; kernels bound by memory gain less.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, longest, places, stage_of
from stepscope.findings.finding import Finding
from stepscope.findings.words import ms

ID = "clock-throttling"

_CLOCK = r"(?i)(gpc|sm|gr(aphics)?)[ _]?clock"
#: Clocks vary by a few per cent; less is not throttled.
_BELOW = 0.95


def detect(case: Case) -> list[Finding]:
    if not case.profile.has("counters"):
        raise _unknown()
    samples = case.profile.counters
    samples = samples.filter(case.profile.names.gather(samples["name"]).str.contains(_CLOCK) & (samples["value"] > 0))
    if samples.height == 0:
        raise _unknown()
    found = {r: f for r, h in hosts(case).items() if (f := _slowed(h, samples.filter(pl.col("rank") == r))) is not None}
    if not found:
        return []
    change = Change(op_factor={r: (ops, factor) for r, (ops, factor, _) in found.items()})
    lost = {
        r: float(((1 - factor) * (hosts(case)[r].data.end - hosts(case)[r].data.start)[ops]).sum())
        for r, (ops, factor, _) in found.items()
    }
    if not case.material(int(max(lost.values()))):
        return []
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    ops, factor, most = found[worst]
    data = hosts(case)[worst].data
    return [
        Finding(
            ID,
            f"the GPU of rank {worst} runs below its clock",
            case.saved(change),
            "low",
            f"while kernels run, the clock is at {100 * float(np.median(factor)):.0f} % of the {most:g} it reaches in "
            f"the capture; {len(ops) // case.steps:,} kernels, {ms(lost[worst] / case.steps)} if all of them are bound "
            "by the clock",
            "nvidia-smi -q -d PERFORMANCE tells why: power cap, temperature, or clocks locked by someone; compare with "
            "the other GPUs of the machine",
            ("breakdown", f"--rank {worst}"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(places(worst, data.start[ops], data.end[ops])),
        )
    ]


def _unknown() -> CannotAnswer:
    return CannotAnswer(
        "the trace has no samples of the GPU's clock", "capture with `nsys profile --gpu-metrics-devices=all`"
    )


def _slowed(host: Host, samples: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Kernels that ran at a lower clock than the highest of the capture, the factor of it, and the highest."""
    if samples.height < 2:
        return None
    at, value = samples.sort("start_ns")["start_ns"].to_numpy(), samples.sort("start_ns")["value"].to_numpy()
    most = float(np.quantile(value, 0.99))
    data = host.data
    ops = np.flatnonzero((data.role == COMPUTE) & (data.start >= host.begin) & (data.start < host.end))
    clock = value[np.clip(np.searchsorted(at, data.start[ops], side="right") - 1, 0, None)] / most
    slow = clock < _BELOW
    return (ops[slow], np.minimum(clock[slow], 1.0), most) if slow.any() else None

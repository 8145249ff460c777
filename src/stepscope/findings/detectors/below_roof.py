"""Kernels that Nsight Compute measured far below their roof, and that take a share of the step.

Only where the profile was opened with a report of the same program: its kernels are matched with those of the step
(`derive/kernel/matching.py`), and what is ambiguous is left out. What it could save is the step replayed with each
of them at the part of its roof that good kernels reach; its interval ends at the roof itself. Kernels that are bound by
the overhead of starting them have another remedy, and are not counted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.kernel.access import access, pattern_of
from stepscope.derive.kernel.bound import bounds_of
from stepscope.derive.kernel.matched import roof_ns_of
from stepscope.derive.kernel.matching import joined
from stepscope.derive.kernel.roofline import Roofline, roofline_of
from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty, hosts, stage_of
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import kernel as shown
from stepscope.findings.finding import Finding, Place
from stepscope.findings.texts import title
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

ROOF_REACH = Threshold(
    80.0,
    "% of the roof",
    "products of matrices reach 82 % of the dense roof of an H200, copies 90 % of its DRAM: a kernel that is well made "
    "comes that close",
    ("tests/findings/test_below_roof.py", "h200/ncu/ncu_full_raw.csv"),
)
ROOF_LEAST = Threshold(
    60.0,
    "% of the roof",
    "what most libraries' kernels reach without tuning: the careful end of the promise",
    ("tests/findings/test_below_roof.py", "h200/ncu/ncu_full_raw.csv"),
)


ID = "below-roof"

_ADVICE = {
    "bandwidth": "move fewer bytes: fuse it with its neighbours (torch.compile), use a smaller type",
    "compute": "another kernel for the same work: other tiles or library heuristics, fewer instructions per byte",
    "latency": "more work in flight: a larger grid or split-k, more warps per multiprocessor, loads issued earlier",
}
_PATTERNS = {
    "uncoalesced": "let neighbouring threads read neighbouring addresses",
    "bank conflicts": "pad or swizzle its arrays in shared memory",
}


def _measured(case: Case) -> dict[int, tuple[I64, F64, I64]]:
    """By rank: ops of the step with a roof, the time at it, and the measured kernel that each is."""
    if not joined(case.profile):
        return {}
    bounds = case.profile.once(bounds_of)
    tunable = np.array([bound.by != "overhead" for bound in bounds] or [False])
    measured = {}
    for rank, host in hosts(case).items():
        ops: I64 = host.window.ops[host.data.role[host.window.ops] == COMPUTE]
        roof, kernel = roof_ns_of(case.profile, rank, ops)
        wanted = ~np.isnan(roof) & tunable[np.maximum(kernel, 0)] & (kernel != NONE)
        if wanted.any():
            measured[rank] = ops[wanted], roof[wanted], kernel[wanted]
    return measured


def remedy(case: Case) -> Change:
    """Each at the part of its roof that good kernels reach."""
    return _at(case, ROOF_REACH.share)


def _at(case: Case, reach: float) -> Change:
    measured = case.once(_measured)
    return Change(op_factor={r: (ops, _factor(case, r, ops, roof, reach)) for r, (ops, roof, _) in measured.items()})


def _factor(case: Case, rank: int, ops: I64, roof: F64, reach: float) -> F64:
    data = hosts(case)[rank].data
    took = np.maximum((data.end - data.start)[ops], 1)
    factor: F64 = np.minimum(roof / reach / took, 1.0)
    return factor


def detect(case: Case) -> list[Finding]:
    measured = case.once(_measured)
    lost = {r: _lost(case, r) for r in measured}
    gain = {r: int(ns.sum()) for r, ns in lost.items()}
    if not case.material(max(gain.values(), default=0)):
        return []
    ranks = guilty(gain)
    worst = max(ranks, key=lambda r: (gain[r], -r))
    data, (ops, roof, kernel) = hosts(case)[worst].data, measured[worst]
    took = (data.end - data.start)[ops]
    frame = pl.DataFrame({"name": data.name[ops], "lost": lost[worst], "ns": took, "roof": roof, "kernel": kernel})
    by_name = frame.group_by("name").agg(pl.col("lost", "ns", "roof").sum(), pl.col("kernel").sort_by("lost").last())
    top = by_name.sort("lost", "name", descending=True).row(0, named=True)
    name = short_names(case.profile.names.gather([top["name"]]))[0]
    row = shown(case, worst, name)
    roofline = case.profile.once(roofline_of)
    pattern = _pattern(roofline, top["kernel"])
    bound = case.profile.once(bounds_of)[top["kernel"]]
    kernels = int((lost[worst] > 0).sum())
    return [
        Finding(
            ID,
            title("below-roof", kernels=several(kernels, "measured kernel is", "measured kernels are"), worst=worst),
            case.credit(ID),
            "certain",
            f"{several(len(ops), 'kernel')} that were measured take {about(int(took.sum()))} of the step on rank "
            f"{worst}, and {about(float(roof.sum()))} at their roofs. The most is lost in `{short_range(name)}` "
            f"({about(int(row['total_ns']))} in all), at {row['roof_pct']:.0f} % of its roof "
            f"({roofline.roof[top['kernel']]}): bound by {bound.by or 'nothing that was measured'}, {bound.why}"
            f"{f'; {pattern}' if pattern else ''}. Counted up to {ROOF_REACH.value:.0f} % of the roof",
            _advice(bound.by, pattern),
            ("kernels", f"--rank {worst}"),
            ranks=ranks,
            figures=(int(row["total_ns"]), float(row["roof_pct"])),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in _places(case, r)),
            low_ns=case.credit(ID, _at(case, ROOF_LEAST.share)),
            high_ns=case.credit(ID, _at(case, 1.0)),
        )
    ]


def _lost(case: Case, rank: int) -> I64:
    """By measured op: the time beyond what good kernels reach."""
    ops, roof, _ = case.once(_measured)[rank]
    data = hosts(case)[rank].data
    took = (data.end - data.start)[ops]
    lost: I64 = np.round(took * (1 - _factor(case, rank, ops, roof, ROOF_REACH.share))).astype(np.int64)
    return lost


def _places(case: Case, rank: int) -> list[Place]:
    ops = case.once(_measured)[rank][0]
    far = ops[_lost(case, rank) > 0]
    data = hosts(case)[rank].data
    return places(rank, data.start[far], data.end[far])


def _pattern(roofline: Roofline, kernel: int) -> str | None:
    patterns = access(roofline.kernels)
    return pattern_of(float(patterns.uncoalesced_pct[kernel]), float(patterns.conflicts_pct[kernel]))


def _advice(by: str | None, pattern: str | None) -> str:
    """What bounds it says what to change; a bad access pattern comes first."""
    first = [advice for word, advice in _PATTERNS.items() if pattern and word in pattern]
    return "; ".join([*first, _ADVICE.get(by or "", _ADVICE["latency"]), "`stepscope roofline` has its figures"])

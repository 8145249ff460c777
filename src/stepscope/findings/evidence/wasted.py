"""Compute that the same work does not need: kernels of a step, and the part of its time that each would take at best.

Detectors of wasteful compute share this: each names kernels and what would be left of them; the replay says what the
step gives back then, which is nothing where the host is behind anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import guilty, hosts, stage_of
from stepscope.findings.evidence.places import longest, places
from stepscope.findings.evidence.shown import kernel
from stepscope.findings.evidence.unprofiled import added_ns
from stepscope.findings.finding import Finding, Place
from stepscope.intervals import Spans, union
from stepscope.intervals.arrays import F64, I64, NONE
from stepscope.model.kernel_names import short_names
from stepscope.model.range_names import short_range
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

HIDDEN_BY_HOST = Threshold(
    50.0,
    "% of the time that kernels take too long",
    "below that, most of it is hidden: what else has to be mended first is worth a word",
    ("tests/findings/test_recomputation.py",),
)


class Waste(Struct, frozen=True):
    """Ops of one rank, and the part of its time that each would take; 0: it would not run, nor be launched."""

    ops: I64
    left: F64
    #: those that come one behind the other would be one kernel, without gaps; and launched once
    merged: bool = False
    launched_once: bool = True


Wastes = Mapping[int, Waste]


class Told(Struct, frozen=True):
    """What the evidence may say of the worst rank."""

    rank: int
    kernels: int
    took_ns: int
    good_ns: int
    #: the kernel that most of the loss is in, and its time as `kernels` has it
    top: str
    top_ns: int

    @property
    def most(self) -> str:
        """Where most of it is, in words that the command's figures show."""
        return f"mainly `{short_range(self.top)}` ({about(self.top_ns)} in all)"


def change(case: Case, wastes: Wastes) -> Change:
    """The step with each at its good time."""
    gone = {r: _gone(w) for r, w in wastes.items()}
    gone = {r: ops for r, ops in gone.items() if len(ops)}
    cuts = {r: _launches(case, r, ops) for r, ops in gone.items() if wastes[r].launched_once}
    return Change(
        op_factor={r: (w.ops, w.left) for r, w in wastes.items()},
        ops_fused=gone,
        host_time_cut={r: spans for r, spans in cuts.items() if spans},
    )


def _gone(waste: Waste) -> I64:
    """Ops that would not be launched."""
    if not waste.merged:
        gone: I64 = waste.ops[waste.left == 0]
        return gone
    ops = np.sort(waste.ops)
    return ops[np.r_[False, np.diff(ops) == 1]] if len(ops) else ops


def _launches(case: Case, rank: int, ops: I64) -> Spans:
    """Host time of launches that are not made: the program's, not the profiler's."""
    host = hosts(case)[rank]
    launch = host.data.launch[ops]
    return host.own_time(launch[launch != NONE], added_ns(case))


def lost_ns(case: Case, rank: int, waste: Waste) -> int:
    """Time of its kernels beyond what is left of them."""
    return int(_lost(case, rank, waste).sum())


def _lost(case: Case, rank: int, waste: Waste) -> F64:
    data = hosts(case)[rank].data
    lost: F64 = (data.end - data.start)[waste.ops] * (1 - waste.left)
    return lost


def material(case: Case, wastes: Wastes) -> bool:
    """Whether it can become a finding."""
    return case.material(max((lost_ns(case, r, w) for r, w in wastes.items()), default=0))


def wasted(
    case: Case, ident: str, wastes: Wastes, say: Callable[[Told], tuple[str, str, str]], **more: Any
) -> list[Finding]:
    """The finding, if there is one. `say` gives title, evidence and what to try."""
    if not material(case, wastes):
        return []
    lost = {r: lost_ns(case, r, w) for r, w in wastes.items()}
    ranks = guilty(lost)
    worst = max(ranks, key=lambda r: (lost[r], -r))
    waste = _told(case, worst, wastes[worst])
    title, evidence, try_next = say(waste)
    saved = case.credit(ident)
    return [
        Finding(
            ident,
            title,
            saved,
            evidence=f"{evidence}{_behind(saved, lost[worst])}",
            try_next=try_next,
            command=("kernels", f"--rank {worst}"),
            ranks=ranks,
            figures=(waste.top_ns,),
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in _places(case, r, wastes[r])),
            stands_out=saved == 0,
            covers={r: _spans(case, r, w) for r, w in wastes.items()},
            **{"cause": "likely", **more},
        )
    ]


def _spans(case: Case, rank: int, waste: Waste) -> Spans:
    """When its ops run: copies within the device among them are exposed, and this is why."""
    data = hosts(case)[rank].data
    return union(data.start[waste.ops], data.end[waste.ops])


def _behind(saved: int, lost: int) -> str:
    """What stands behind it, where the step gives back far less than the kernels take too long, or far more."""
    if saved * HIDDEN_BY_HOST.share > lost:
        return (
            f". {about(saved - lost)} of what is saved is host time: the host is behind, and would not have to "
            "launch them"
        )
    if saved >= HIDDEN_BY_HOST.share * lost:
        return ""
    return (
        f". The GPU would finish {about(lost)} sooner, but the step only {about(saved)}: for the "
        "rest the host or other ranks hold it up"
    )


def _told(case: Case, rank: int, waste: Waste) -> Told:
    data = hosts(case)[rank].data
    took, lost = (data.end - data.start)[waste.ops], _lost(case, rank, waste)
    by_name = pl.DataFrame({"name": data.name[waste.ops], "lost": lost}).group_by("name").sum()
    top = short_names(case.profile.names.gather(by_name.sort("lost", "name", descending=True)["name"][:1]))[0]
    total = int(took.sum())
    shown = int(kernel(case, rank, top)["total_ns"])
    return Told(rank, int((lost > 0).sum()), total, total - int(lost.sum()), top, shown)


def _places(case: Case, rank: int, waste: Waste) -> list[Place]:
    """Its stretches: kernels one behind the other are one."""
    data = hosts(case)[rank].data
    ops = np.sort(waste.ops)
    first = np.r_[True, np.diff(ops) > 1] if len(ops) else np.empty(0, dtype=bool)
    last = np.r_[first[1:], True] if len(ops) else first
    return places(rank, data.start[ops[first]], data.end[ops[last]])

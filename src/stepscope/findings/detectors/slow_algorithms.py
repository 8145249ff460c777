"""Deterministic algorithms: convolutions by other kernels than the fastest, and fills of memory that is written anyway.

`capture run` notes what torch was set to. What it could save is at most the step replayed with convolutions at the
rate of good ones (where shapes tell their FLOPs) and, where torch fills new memory in this mode, without fills.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.replay.change import Change
from stepscope.derive.work.phases import BACKWARD, FORWARD
from stepscope.derive.work.roles import Role
from stepscope.derive.work.step import step_work
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, hosts
from stepscope.findings.evidence.wasted import Told, Waste, change, wasted
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "slow-algorithms"


def _slow(case: Case) -> dict[int, Waste]:
    """By rank whose program asked for deterministic algorithms: what they may cost."""
    waste_of = {}
    for rank, host in hosts(case).items():
        settings = case.profile.program_facts(rank).get("settings", {})
        if settings.get("deterministic") or settings.get("cudnn_deterministic"):
            waste = _of(host, fills=bool(settings.get("deterministic") and settings.get("fills_memory")))
            if len(waste.ops):
                waste_of[rank] = waste
    return waste_of


def _of(host: Host, fills: bool) -> Waste:
    work = step_work(host.data, host.window)
    left = np.where(work.kinds.are(Role.CONVOLUTION), work.good.ns / np.maximum(work.length, 1), 1.0)
    if fills:
        left[work.kinds.are(Role.FILL) & work.passes.are(FORWARD, BACKWARD) & host.data.is_kernel[work.ops]] = 0.0
    mine = left < 1
    return Waste(work.ops[mine], left[mine])


def remedy(case: Case) -> Change:
    """The fastest convolutions, and no fills."""
    return change(case, case.once(_slow))


def detect(case: Case) -> list[Finding]:
    return wasted(case, ID, case.once(_slow), lambda told: _said(case, told), cause="certain", bound=True)


def _said(case: Case, lost: Told) -> tuple[str, str, str]:
    work = step_work(hosts(case)[lost.rank].data, case.windows[lost.rank])
    unknown = work.kinds.are(Role.CONVOLUTION) & ~work.done.known
    more = f"; what convolutions would take is not known: {capture_with('shapes')}" if unknown.any() else ""
    return (
        title("slow-algorithms", kernels=several(lost.kernels, "kernel"), rank=lost.rank),
        f"the program asked for them (manifest); {about(lost.took_ns)} of the step on rank {lost.rank} are "
        f"convolutions slower than good ones and fills of new memory, {lost.most}; at best "
        f"{about(lost.good_ns)} of that would remain{more}",
        advice("slow-algorithms"),
    )


def notes(case: Case) -> list[Note]:
    """Convolutions whose kernels cuDNN did not try out."""
    for rank, host in hosts(case).items():
        settings = case.profile.program_facts(rank).get("settings", {})
        work = step_work(host.data, host.window) if settings.get("cudnn_benchmark") is False else None
        took = int(work.length[work.kinds.are(Role.CONVOLUTION)].sum()) if work else 0
        if case.share(took) >= 20.0:
            return [noted("convolutions-not-tried", took=about(took), rank=rank)]
    return []

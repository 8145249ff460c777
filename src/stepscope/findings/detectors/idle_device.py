"""A process with several GPUs, of which one waits while another works.

Layers that are spread over devices run one after the other unless micro-batches fill them; data parallelism within one
process (DataParallel) gathers on one. Looked at is how long each device of a process computes in the step. What it
could save is the most that an even share would: the busiest device's time beyond the mean.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.places import places_of
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.intervals import union
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

DEVICE_WAITS = Threshold(
    50.0,
    "% of the busiest device",
    "devices of one process that share the work evenly differ by a few per cent",
    ("tests/findings/test_idle_device.py",),
)


ID = "idle-device"


def detect(case: Case) -> list[Finding]:
    findings = []
    for rank, busy in case.each_rank(_busy).items():
        if len(busy) < 2:
            continue
        least, most = min(busy, key=lambda d: busy[d][0]), max(busy, key=lambda d: busy[d][0])
        beyond = int(busy[most][0] - np.mean([ns for ns, _ in busy.values()]))
        if busy[least][0] < DEVICE_WAITS.share * busy[most][0] and case.material(beyond):
            findings.append(_finding(case, rank, least, most, busy, beyond))
    return findings


def _busy(_: Profile, data: RankData, window: Window) -> dict[int, tuple[int, I64]]:
    """By device of the process: how long it computes in the step, and its kernels."""
    ops = window.ops[data.role[window.ops] == COMPUTE]
    device = data.ops["device"].to_numpy()[ops]
    of_device = {int(d): ops[device == d] for d in np.unique(device).tolist()}
    return {d: (union(data.start[rows], data.end[rows]).length(), rows) for d, rows in of_device.items()}


def _finding(case: Case, rank: int, least: int, most: int, busy: dict[int, tuple[int, I64]], beyond: int) -> Finding:
    longest = busy[most][1]
    stream, ns = _busiest(case, rank, longest)
    return Finding(
        ID,
        title("idle-device", least=least, rank=rank, most=most),
        beyond,
        "possible",
        f"GPU {least} computes for {about(busy[least][0])} of the step, GPU {most} for {about(busy[most][0])} "
        f"(its stream {stream} for {about(ns)})",
        advice("idle-device"),
        ("streams", ""),
        ranks=(rank,),
        figures=(ns,),
        where=places_of(case, [(rank, int(op)) for op in longest[:10].tolist()]),
        bound=True,
    )


def _busiest(case: Case, rank: int, ops: I64) -> tuple[int, int]:
    """Of the streams that ran these kernels, the one with most, and how long they take, as `streams` has it."""
    data = case.data_of(rank)
    ids, at = np.unique(data.stream[ops], return_inverse=True)
    took = np.bincount(at.reshape(-1), (data.end - data.start)[ops]).astype(np.int64)
    return int(ids[np.argmax(took)]), int(took.max())

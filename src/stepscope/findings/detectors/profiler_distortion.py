"""The measurement changes what it measures: a synchronization behind every block, timers that wait for the GPU.

Block timers that synchronize destroy the overlap that they are meant to time: shares of such a profile say where time
goes, its lengths and its overlap say nothing of the real run. That is true whatever else is found, so the finding is
shown even where it could give nothing back. What it could give back is the step replayed without those waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.derive.host.idle_causes import SYNC
from stepscope.derive.rank.data import COMPUTE
from stepscope.derive.replay.change import Change
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, guilty, hosts, longest, stage_of, sure
from stepscope.findings.finding import Finding
from stepscope.findings.words import ms
from stepscope.model.nesting import NONE

ID = "profiler-distortion"
I64 = npt.NDArray[np.int64]

#: So many device synchronizations in a step are no accident ...
_LEAST = 8
#: ... where kernels with such a share of the compute are each followed by one, or nearly all ranges that launch are.
_OF_COMPUTE, _OF_RANGES = 0.5, 0.9


@dataclass(frozen=True)
class Forced:
    """Synchronizations of one rank that only a measurement needs."""

    host: Host
    calls: I64
    behind: str  # what each of them follows


def forced(case: Case) -> dict[int, Forced]:
    """By rank: device synchronizations behind every block; nothing where there are none."""
    return case.once(_forced)


def _forced(case: Case) -> dict[int, Forced]:
    return {r: f for r, h in hosts(case).items() if (f := _of(h)) is not None}


def unforced(case: Case) -> Change:
    """The step without them."""
    return Change(calls_not_waiting={r: f.calls for r, f in forced(case).items()})


def detect(case: Case) -> list[Finding]:
    found = forced(case)
    if not found:
        return []
    saved = case.saved(unforced(case))
    ranks = guilty({r: float(len(f.calls)) for r, f in found.items()})
    worst = max(ranks, key=lambda r: (len(found[r].calls), -r))
    mine = found[worst]
    n = round(len(mine.calls) / case.steps)
    return [
        Finding(
            ID,
            f"this profile is attribution only: {n:,} synchronizations, one behind {mine.behind}, destroy overlap",
            saved,
            sure(case),
            f"on rank {worst} they take {ms(mine.host.length(mine.calls) / case.steps)} of the step; with the host "
            "waiting each time, nothing can be launched ahead and no communication can run beside compute: shares of "
            "time hold, lengths and overlap do not",
            "time blocks with CUDA events (torch.cuda.Event(enable_timing=True)) or with ranges alone, and profile "
            "again before judging overlap, launches or bubbles",
            ("idle", "--by cause"),
            ranks=ranks,
            stage=stage_of(case, ranks),
            where=longest(p for r in ranks for p in found[r].host.longest(found[r].calls)),
            warns=True,
        )
    ]


def _of(host: Host) -> Forced | None:
    data = host.data
    calls = host.of_cause(SYNC)
    texts = host.profile.names.gather(data.calls["name"].gather(calls))
    calls = calls[texts.str.contains("(?i)(device|ctx|context)synchronize").to_numpy()]
    if len(calls) < _LEAST:
        return None
    behind = _behind_kernels(host, calls) or _behind_ranges(host, calls)
    return Forced(host, calls, behind) if behind else None


def _behind_kernels(host: Host, calls: I64) -> str | None:
    """Whether one of the calls follows most kernels, by their time, before the next is launched."""
    data = host.data
    ops = np.flatnonzero((data.launch != NONE) & (data.role == COMPUTE))
    ops = ops[(data.start[ops] >= host.begin) & (data.start[ops] < host.end)]
    ops = ops[np.argsort(data.launch[ops], kind="stable")]
    if len(ops) == 0:
        return None
    n = np.searchsorted(calls, data.launch[ops])
    followed = np.r_[n[1:] > n[:-1], n[-1] < len(calls)]
    time = data.end[ops] - data.start[ops]
    return "nearly every large kernel" if time[followed].sum() >= _OF_COMPUTE * time.sum() else None


def _behind_ranges(host: Host, calls: I64) -> str | None:
    """Whether nearly all innermost ranges that launch kernels end with one of the calls."""
    data = host.data
    ops, _ = host.stretches
    kernels = ops[data.role[ops] == COMPUTE]
    within = data.enclosing(kernels)
    known = within != NONE
    if not known.any():
        return None
    ranges = np.unique(within[known])
    last = np.zeros(data.ranges.height, np.int64)
    np.maximum.at(last, within[known], data.launch[kernels[known]])
    after = np.searchsorted(calls, last[ranges], side="right")
    end = data.ranges["end_ns"].to_numpy()[ranges]
    there = after < len(calls)
    ended = there & (host.start[calls[np.minimum(after, len(calls) - 1)]] < end)
    return "every range" if len(ranges) >= _LEAST and ended.mean() >= _OF_RANGES else None

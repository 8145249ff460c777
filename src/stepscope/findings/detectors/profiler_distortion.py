"""The measurement changes what it measures: a synchronization behind every block, timers that wait for the GPU.

Block timers that synchronize destroy the overlap that they are meant to time: shares of such a profile say where time
goes, its lengths and its overlap say nothing of the real run. That is true whatever else is found, so the finding is
shown even where it could give nothing back. What it could give back is the step replayed without those waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analyses._causes import SYNC
from stepscope.analyses._change import Change
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.findings.hosts import Host, guilty, hosts, longest, stage_of, sure
from stepscope.findings.words import ms
from stepscope.model.nesting import NONE

ID = "profiler-distortion"
I64 = npt.NDArray[np.int64]

#: So many device synchronizations in a step are no accident ...
_LEAST = 8
#: ... where so large a part of a range's instances ends with one, or of all launches is followed by one.
_PART = 0.8


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
    return Change(unheld={r: f.calls for r, f in forced(case).items()})


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
        )
    ]


def _of(host: Host) -> Forced | None:
    data = host.data
    calls = host.of_cause(SYNC)
    texts = host.profile.names.gather(data.calls["name"].gather(calls))
    calls = calls[texts.str.contains("(?i)(device|ctx|context)synchronize").to_numpy()]
    if len(calls) < _LEAST:
        return None
    behind = _range_ended(host, calls) or _launch_followed(host, calls)
    return Forced(host, calls, behind) if behind else None


def _range_ended(host: Host, calls: I64) -> str | None:
    """The text of ranges most of whose instances end with one of the calls, each with its own; numbers left out."""
    data = host.data
    tid = data.calls["tid"].cast(pl.Int64).fill_null(NONE).to_numpy()
    within = data.range_at(tid[calls], host.start[calls])
    texts = data.text_of(within).str.replace_all(r"\d+", "#")
    ranges = data.ranges[data.own_ranges]
    inside = ranges.filter((pl.col("start_ns") >= host.begin) & (pl.col("start_ns") < host.end))
    every = host.profile.names.gather(inside["name"]).str.replace_all(r"\d+", "#").alias("text").value_counts()
    counts = dict(every.iter_rows())
    found = pl.DataFrame({"text": texts, "range": within}).filter(pl.col("range") >= 0).unique()
    ended = found.group_by("text").len().sort(["len", "text"], descending=[True, False])
    for text, n in ended.iter_rows():
        if n >= _LEAST and n >= _PART * counts.get(text, 0) and n >= _PART * len(calls) / 4:
            return f"each `{text}`"
    return None


def _launch_followed(host: Host, calls: I64) -> str | None:
    """Whether most products, or most launches of any kind, are followed by one of the calls before the next launch."""
    data = host.data
    launches = np.unique(data.launch[(data.launch != NONE) & data.is_kernel])
    launches = launches[(host.start[launches] >= host.begin) & (host.start[launches] < host.end)]
    before = np.searchsorted(launches, calls)
    followed = len(np.unique(before[before > 0]))
    return "nearly every kernel" if len(launches) and followed >= _PART * len(launches) else None

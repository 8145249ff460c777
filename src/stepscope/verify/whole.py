"""Is all of it there? A capture that was cut off, or lost events, looks like a fast run."""

from __future__ import annotations

import re

from stepscope.capture.spec import NVTX_TRIGGER
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.recorded import MOST_LOST, contradictions, recorded
from stepscope.derive.windows.cut_off import cut_off
from stepscope.model.note import IMPOSSIBLE, PROFILER_WARNING
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text
from stepscope.model.units import about
from stepscope.verify.check import FAILED, OK, SKIPPED, WARNING, Check


def cut(data: list[RankData]) -> Check:
    """Ranges go on to the end on every rank; so must CUDA calls. Where they end early, one stop ended the capture."""
    name = "not cut off"
    judged = [end for d in data if (end := cut_off(d)) is not None]
    if not judged:
        return Check(name, SKIPPED, "", "no chunk or step ranges with GPU work to compare", "")
    ended = {end.rank: end for end in judged if end.empty}
    if not ended:
        return Check(name, OK, "", "GPU work to the last chunk and step, on every rank", "GPU work to the end")
    worst = max(ended.values(), key=lambda end: end.empty)
    calls = next(d.calls for d in data if d.rank == worst.rank)
    last = int(calls["end_ns"].max()) if calls.height else 0  # type: ignore[arg-type]
    others = max((int(d.calls["end_ns"].max()) for d in data if d.rank not in ended and d.calls.height), default=0)  # type: ignore[arg-type]
    gap = f"rank {worst.rank}: the last {worst.empty} of {worst.total} chunks or steps have ranges but no GPU work"
    if others > last:
        gap += f"; its CUDA events end {about(others - last)} before those of others"
    fix = (
        "one rank's stop ended the capture for all: ranks under one profiler need a common stop (a barrier before"
        " cudaProfilerStop; stepscope.annotate.step has one), or a profiler each (capture run --per rank)"
    )
    return Check(name, FAILED, ranks_text(ended), gap, "GPU work to the end", fix)


def launches(data: list[RankData]) -> Check:
    """Every launch has its op: those of the last moments are missing where the capture stopped before the GPU did."""
    name = "nothing dropped"
    counts = {d.rank: recorded(d) for d in data}
    total = sum(c.launches for c in counts.values())
    missing = {rank: c.lost + c.lost_at_end for rank, c in counts.items()}
    lost = {rank: n for rank, n in missing.items() if n > MOST_LOST.share * max(1, counts[rank].launches)}
    if not total:
        return Check(name, SKIPPED, "", "no launch calls recorded", "")
    if not lost:
        return Check(name, OK, "", f"all {total} launches have their op", "an op for every launch")
    fix = "synchronize the device before the profiler stops (stepscope.annotate.step does)"
    return Check(
        name, FAILED, ranks_text(lost), f"{sum(lost.values())} of {total} launches have no op", "an op each", fix
    )


def closed(data: list[RankData], profile: Profile) -> Check:
    """Ranges that the capture's end closed, not the program."""
    ours = profile.names_with(f"^{re.escape(NVTX_TRIGGER)}$")  # it ends the capture itself
    open_ = {d.rank: int((~d.ranges["closed"].to_numpy() & ~ours[d.ranges["name"].to_numpy()]).sum()) for d in data}
    open_ = {r: n for r, n in open_.items() if n}
    if not open_:
        return Check("ranges closed", OK, "", "every range ends in the capture", "")
    fix = "stop the profiler between steps, not in one"
    return Check(
        "ranges closed", WARNING, ranks_text(open_), f"{sum(open_.values())} ranges were open at the end", "", fix
    )


def warnings(profile: Profile) -> Check:
    """What the profiler itself says was lost."""
    warned = [n for n in profile.notes if n.code == PROFILER_WARNING]
    if not warned:
        return Check("profiler's own warnings", OK, "", "none", "")
    more = f" (and {len(warned) - 1} more: stepscope info)" if len(warned) > 1 else ""
    return Check("profiler's own warnings", WARNING, "", warned[0] + more, "none")


def records(profile: Profile, data: list[RankData]) -> Check:
    """Records that can be: times in order, names and threads that exist. Others were left out, or are unknown."""
    unnamed = [n for d in data for n in contradictions(d) if n.code == "kernels-without-name"]
    damaged = [n for n in profile.notes if n.code == "file-damaged"]
    doubts = [*damaged, *unnamed, *(n for n in profile.notes if n.code in IMPOSSIBLE)]
    if not doubts:
        return Check("records", OK, "", "all are possible", "")
    more = f" (and {len(doubts) - 1} more: stepscope info)" if len(doubts) > 1 else ""
    return Check("records", FAILED, "", doubts[0] + more, "none that is impossible", "export again; else capture again")

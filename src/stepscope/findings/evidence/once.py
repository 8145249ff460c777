"""What a capture without steps does once: no step loses it.

The GPU idles until a kernel that has not run before: its code is loaded, a connection is made, data is prepared. Or it
idles while a CUDA graph is captured that has not been launched yet. Nothing tells whether such a gap would come again.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.cuda_calls import Family, of_family
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.graphs import recordings
from stepscope.derive.run.contents import contents
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.start_up import start_up, started
from stepscope.findings.thresholds import SHOWN
from stepscope.intervals import Spans, intersect, join, union
from stepscope.intervals.arrays import NONE, Mask
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.statement import percent
from stepscope.model.units import about


def once(case: Case) -> dict[int, Spans]:
    """By rank: idle time behind its start-up that nothing repeats; empty where a step is looked at."""
    if case.kind != "capture":
        return dict.fromkeys(case.ranks, Spans.empty())
    return case.each_rank(_once)


def set_up(case: Case) -> int:
    """How much of the window is start-up or comes once, on a rank on average."""
    if case.kind != "capture":
        return 0
    begun = case.each_rank(lambda _, data, window: start_up(data, window))
    return int(np.mean([spans.length() + case.once(once)[rank].length() for rank, spans in begun.items()]))


def once_notes(case: Case) -> list[Note]:
    """What comes once, where it is a share of the capture."""
    spans = case.once(once)
    if not spans or not case.material(int(np.mean([s.length() for s in spans.values()])), SHOWN):
        return []
    worst = max(spans, key=lambda rank: (spans[rank].length(), -rank))
    made: dict[str, int] = {}
    for what, _, ns in contents(case.data_of(worst), spans[worst]):
        made[what] = made.get(what, 0) + ns
    longest = ", ".join(f"{what} {about(ns)}" for what, ns in sorted(made.items(), key=lambda item: -item[1])[:2])
    share = percent(sum(s.length() for s in spans.values()), sum(case.windows[r].gpu_ns for r in spans))
    return [noted("comes-once", share=share, longest=longest)]


def _once(_: Profile, data: RankData, window: Window) -> Spans:
    assert window.gpu_start_ns is not None and window.gpu_end_ns is not None
    begin = min(max(window.gpu_start_ns, started(data, window)), window.gpu_end_ns)
    idle = partition(data, begin, window.gpu_end_ns).idle
    after = np.searchsorted(data.start, idle.end)  # ops are in start order: the one that ends the gap
    first = np.append(_first_of_name(data), False)[after]
    return join(Spans(idle.start[first], idle.end[first]), intersect(idle, _first_captures(data)))


def _first_of_name(data: RankData) -> Mask:
    """By op: whether none of its name ran before it."""
    first = np.zeros(len(data.name), dtype=bool)
    at = np.full(int(data.name.max(initial=0)) + 1, NONE)
    at[data.name[::-1]] = np.arange(len(data.name))[::-1]  # of several the last that is written: the first op
    first[at[at != NONE]] = True
    return first


def _first_captures(data: RankData) -> Spans:
    """When graphs were captured before any was launched."""
    start, end = recordings(data)
    launched = data.calls["start_ns"].to_numpy()[of_family(data, Family.GRAPH_LAUNCH)]
    first = start < (launched.min() if len(launched) else np.iinfo(np.int64).max)
    return union(start[first], end[first])

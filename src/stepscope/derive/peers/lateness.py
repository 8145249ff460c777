"""What a rank did on its own before it met others: its kernels, and the time it had none because its host was late.

`host_ns` is time without compute or copies whose next op had not been launched yet: the host was behind, for whatever
reason of its own. Where the host was blocked in a synchronizing call while communication ran, it waited for others:
that is not its own. `data_ns` is the part of it spent on input: in a range named so, or before the next copy from the
host.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.peers.input import FETCH, data_ranges, fetching_gaps
from stepscope.derive.rank.cuda_calls import WAITING, of_family
from stepscope.derive.rank.data import COMM, RankData
from stepscope.intervals import Spans, intersect, join, subtract, union
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.threshold import Threshold

BATCHES = Threshold(
    4,
    "waits for input",
    "copies of weights come once; a loop over batches waits before each of them",
    ("public/aiprof_baseline.sqlite", "public/a100_lm2.7b_nvtx.sqlite"),
)


def host_late(data: RankData, *, near: bool = False) -> tuple[Spans, Spans, bool]:
    """When the rank had nothing to do because its host was late; the part spent on input; whether ranges say so.

    With `near`, long absences of the host near a copy of input count as input, too: of a rank alone that is a guess.
    """
    return data.once(_host_late, near)


def _host_late(data: RankData, near: bool) -> tuple[Spans, Spans, bool]:
    gaps = data.once(_late_gaps)
    if gaps is None:
        return Spans.empty(), Spans.empty(), False
    ranges = data_ranges(data)
    named = intersect(gaps.late, ranges)
    fetched = fetching_gaps(data, ranges, gaps.start, gaps.until, gaps.after, near=near)
    fetching = join(named, intersect(gaps.late, fetched))
    return gaps.late, fetching, 2 * named.length() > fetching.length()


class _LateGaps(Struct, frozen=True):
    """Gaps between the rank's own ops: from when, until which launch returned, and the op that ends each."""

    start: I64
    until: I64
    after: I64
    late: Spans  # of them, without what the host waited for others


def _late_gaps(data: RankData) -> _LateGaps | None:
    """None where nothing can be late."""
    launched = np.flatnonzero((data.role != COMM) & (data.launch != NONE))
    if len(launched) == 0:
        return None
    work = np.flatnonzero(data.role != COMM)
    busy = union(data.start[work], data.end[work])
    if len(busy.start) == 0:  # ops of no length: nothing to be late for
        return None
    begin = data.host_span()[0]
    start = np.r_[busy.start[0] if begin is None else min(begin, busy.start[0]), busy.end[:-1]]
    end = busy.start
    # The op that ends each gap.
    after = launched[np.minimum(np.searchsorted(data.start[launched], end), len(launched) - 1)]
    calls_start, calls_end = (data.calls[c].to_numpy() for c in ("start_ns", "end_ns"))
    until = np.clip(calls_end[data.launch[after]], start, end)
    late = union(start, until)
    comm = np.flatnonzero(data.role == COMM)
    blocked = np.flatnonzero(of_family(data, *WAITING))
    waiting = intersect(union(calls_start[blocked], calls_end[blocked]), union(data.start[comm], data.end[comm]))
    return _LateGaps(start, until, after, subtract(late, waiting))


def recurring_input(data: RankData) -> bool:
    """Whether the rank waits for input again and again: once or twice is loading a model, not training on batches."""
    _, fetching, _ = host_late(data)
    return int((fetching.end - fetching.start >= FETCH.ns).sum()) >= BATCHES.value

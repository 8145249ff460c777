"""What a rank did on its own before it met others: its kernels, and the time it had none because its host was late.

`host_ns` is time without compute or copies whose next op had not been launched yet: the host was behind, for whatever
reason of its own. Where the host was blocked in a synchronizing call while communication ran, it waited for others:
that is not its own. `data_ns` is the part of it spent on input: in a range named so, or before the next copy from the
host.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.graph.releases import nearest_comm
from stepscope.derive.peers.compute import communications_of, kernels_of, recorded_by_all, recorded_from_to
from stepscope.derive.peers.input import data_ranges, fetching_gaps
from stepscope.derive.peers.thresholds import BATCHES, FETCH
from stepscope.derive.rank.cuda_calls import WAITING, of_family
from stepscope.derive.rank.data import COMM, RankData, ranks_of
from stepscope.intervals import Spans, intersect, join, subtract, union
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.profile import Profile

#: Per communication op: the one that its start waited for, -1 for none.
CHAIN: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "op": pl.Int64,
    "before": pl.Int64,
}
#: Per rank, in all.
OWN: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "span_ns": pl.Int64,  # first to last op
    "communications": pl.Int64,
    "host_ns": pl.Int64,
    "data_ns": pl.Int64,
    "named": pl.Boolean,  # ranges say what is input
    "begin_ns": pl.Int64,  # of its records, in the rank's own time
    "end_ns": pl.Int64,
}


def facts(profile: Profile, data: RankData, sides: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What `stragglers` needs of one rank, as small tables: `chain`, `own` and `kernels`."""
    ops = np.unique(sides["op"].to_numpy())
    before = nearest_comm(data, ops)
    chain = {
        "rank": np.full(len(ops), data.rank),
        "op": ops,
        "before": before,
    }
    return {"chain": pl.DataFrame(chain, schema=CHAIN), **_own(profile, data)}


def comparable(profile: Profile, a: Across) -> tuple[pl.DataFrame, pl.DataFrame, int | None]:
    """`own` and `kernels` of all ranks; where they were recorded for unlike times, of the stretch that all recorded,
    and its length."""
    own, clock = a.facts["own"], CommonClock.of(a)
    spans = {
        r: (clock.moment(r, begin), clock.moment(r, end))
        for r, begin, end in own.select("rank", "begin_ns", "end_ns").iter_rows()
    }
    both = recorded_by_all(spans)
    if both is None:
        return own, a.facts["kernels"], None
    tables = profile.gather(_joined, _within, clock, both)
    return tables["own"], tables["kernels"], both[1] - both[0]


def _within(part: Profile, clock: CommonClock, both: tuple[int, int]) -> dict[str, pl.DataFrame]:
    tables = []
    for data in ranks_of(part):
        begun = int(data.start[0]) if len(data.start) else 0
        ahead = clock.moment(data.rank, begun) - begun
        tables.append(_own(part, data, (both[0] - ahead, both[1] - ahead)))
    return _joined(tables)


def _joined(several: list[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    return {name: pl.concat([tables[name] for tables in several]) for name in (several[0] if several else ())}


def _own(profile: Profile, data: RankData, within: tuple[int, int] | None = None) -> dict[str, pl.DataFrame]:
    """What the rank did on its own, in all or within a stretch of its own time."""
    late, fetching, named = host_late(data)
    ops = np.arange(len(data.start))
    if within is not None:
        late, fetching = late.clip(*within), fetching.clip(*within)
        ops = np.flatnonzero((data.start >= within[0]) & (data.start < within[1]))
    span = int(data.end[ops].max() - data.start[ops].min()) if len(ops) else 0
    counts = communications_of(data, ops), late.length(), fetching.length(), named
    totals = (data.rank, span, *counts, *recorded_from_to(data))
    return {"own": pl.DataFrame([totals], schema=OWN, orient="row"), "kernels": kernels_of(profile, data, ops)}


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

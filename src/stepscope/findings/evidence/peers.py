"""The compute of each rank in the step beside that of its peers (`derive.peers.compute`)."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.peers.compute import (
    KERNELS,
    Compared,
    blocks_of,
    communications_of,
    compare,
    kernels_of,
    longer,
    recorded_by_all,
    recorded_from_to,
    recorded_whole,
    same_work,
)
from stepscope.derive.rank.at_once import of_each
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.intervals.arrays import I64
from stepscope.model.labels import setups


def stages(case: Case) -> dict[int, str]:
    """Ranks that do the same work have the same text."""
    try:
        met = case.path.met
    except CannotAnswer:
        met = None
    return same_work(case.profile.ranks, met)


def pipeline_stage(case: Case, rank: int) -> str | None:
    """`pipeline stage 1`, where there is a pipeline."""
    setup = setups(case.profile.ranks).get(rank)
    return f"pipeline stage {setup.at('pp')}" if setup and setup.size("pp") > 1 else None


def kernels(case: Case) -> pl.DataFrame:
    """Compute kernels of the step, per rank and name, of ranks that recorded as much of it as their peers."""
    return _kernels(case, case.once(comparable))


def comparable(case: Case) -> dict[int, I64]:
    """Ops of the step by rank. Where no step is marked, and ranks were recorded for unlike times: what all recorded."""
    ops = {rank: window.ops for rank, window in case.windows.items()}
    if case.kind != "capture" or len(ops) < 2:
        return ops
    clock = case.once(_clock)
    data = {d.rank: d for d in ranks_of(case.profile) if d.rank in ops}
    spans = {r: recorded_from_to(d) for r, d in data.items()}
    both = recorded_by_all({r: (clock.moment(r, begin), clock.moment(r, end)) for r, (begin, end) in spans.items()})
    if both is None:
        return ops
    start = {r: clock.at(r, data[r].start[rows]) for r, rows in ops.items()}
    return {r: rows[(start[r] >= both[0]) & (start[r] < both[1])] for r, rows in ops.items()}


def _clock(case: Case) -> CommonClock:
    try:
        return case.path.clock
    except CannotAnswer:
        return CommonClock()


def compared(case: Case) -> dict[int, Compared]:
    """Every rank beside its peers in the step; by the sizes of their launches where one computes longer."""
    table = case.once(kernels)
    whole = set(table["rank"].to_list())
    ranks = compare(table, case.once(stages), whole)
    if not any(c.much for c in ranks.values()):
        return ranks
    return compare(table, case.once(stages), whole, _kernels(case, case.once(comparable), sized=True))


def beyond_peers(case: Case) -> dict[int, Compared]:
    """Ranks that compute longer in the step than their peers, whatever the reason."""
    return longer(case.once(compared), case.step_ns, case.once(_slow_throughout))


def _slow_throughout(case: Case) -> set[int]:
    """Ranks that compute longer than their peers over the whole capture."""
    if case.kind == "capture":
        return set()
    table = _kernels(case, {d.rank: np.arange(len(d.start)) for d in ranks_of(case.profile) if d.rank in case.windows})
    spans = [int(d.end.max() - d.start.min()) for d in ranks_of(case.profile) if d.rank in case.windows]
    return set(longer(compare(table, case.once(stages), set(table["rank"].to_list())), max(spans, default=0)))


def _kernels(case: Case, ops: dict[int, I64], sized: bool = False) -> pl.DataFrame:
    data_of = {d.rank: d for d in ranks_of(case.profile) if d.rank in ops}
    counts = {rank: communications_of(data, ops[rank]) for rank, data in data_of.items()}
    whole = recorded_whole(counts, case.once(stages))
    grids = {r: blocks_of(t) for r, t in case.profile.launch_shapes() if r in whole} if sized else {}

    def of_rank(data: RankData) -> pl.DataFrame:
        return kernels_of(case.profile, data, ops[data.rank], grids.get(data.rank))

    tables = of_each(case.profile, [data_of[rank] for rank in sorted(whole)], of_rank)
    return pl.concat([pl.DataFrame(schema=KERNELS), *tables])

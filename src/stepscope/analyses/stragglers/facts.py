"""What `stragglers` needs of each rank, as small tables, and the stretch in which ranks can be compared."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.comm.common_clock import CommonClock
from stepscope.derive.graph.releases import nearest_comm
from stepscope.derive.peers.compute import communications_of, kernels_of, recorded_by_all, recorded_from_to
from stepscope.derive.peers.lateness import host_late
from stepscope.derive.rank.data import RankData, ranks_of
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

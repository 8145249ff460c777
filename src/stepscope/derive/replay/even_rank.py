"""A change: one rank as fast as the median of its peers, in its kernels and on its host.

Who its peers are and how long their kernels take is the rule of `peers.compute`, asked of the step.
"""

from __future__ import annotations

from statistics import median

import numpy as np
import polars as pl

from stepscope.derive.comm.across import Across
from stepscope.derive.graph.releases import releases
from stepscope.derive.peers.compute import (
    KERNELS,
    communications_of,
    compare,
    kernels_of,
    recorded_whole,
    same_work,
)
from stepscope.derive.rank.data import RankData, ranks_of
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.graph import Step, step_ops
from stepscope.errors import BadInput
from stepscope.model.profile import Profile

#: Per rank: communications in the step, launches, and the host's own time per launch.
_HOSTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int64,
    "communications": pl.Int64,
    "launches": pl.Int64,
    "pace_ns": pl.Float64,
}


def paces(part: Profile, steps: dict[int, Step]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernels of the step (`compute.KERNELS`) and `_HOSTS`, of the ranks of one part of a profile."""
    kernels, hosts = [pl.DataFrame(schema=KERNELS)], []
    for data in ranks_of(part):
        if data.rank not in steps:
            continue
        step = steps[data.rank]
        begin, ops = step.begin, step_ops(data, step)
        kernels.append(kernels_of(part, data, ops))
        launched = data.launched_at[ops]
        launched = launched[launched >= begin]
        pace = _own_time(data, begin, int(launched.max())) / len(launched) if len(launched) else 0.0
        hosts.append((data.rank, communications_of(data, ops), len(launched), pace))
    return pl.concat(kernels), pl.DataFrame(hosts, schema=_HOSTS, orient="row")


def _own_time(data: RankData, begin: int, end: int) -> int:
    """Time of the host in which it did not wait for the GPU."""
    call = releases(data).waits.call
    start, stop = (data.calls[c].to_numpy()[call] for c in ("start_ns", "end_ns"))
    waited = np.maximum(np.minimum(stop, end) - np.maximum(start, begin), 0).sum()
    return max(end - begin - int(waited), 0)


def even_rank(profile: Profile, rank: int | None, steps: dict[int, Step], met: Across | None) -> tuple[str, Change]:
    """The change, and what it is in words; of the rank that has most to gain, where none is named."""
    if len(steps) < 2:
        raise BadInput("--what-if even-rank: the profile has one rank, and no peers", "give the traces of all ranks")
    parts = profile.map(paces, steps)
    kernels, hosts = (pl.concat([part[i] for part in parts]) for i in range(2))
    groups = same_work(profile.ranks, met)
    whole = recorded_whole(dict(hosts.select("rank", "communications").iter_rows()), groups)
    compared = compare(kernels, groups, whole)
    pace = {r: (n, each) for r, n, each in hosts.select("rank", "launches", "pace_ns").iter_rows() if r in whole}
    usual = {r: _usual([each for q, (_, each) in pace.items() if q != r and groups[q] == groups[r]]) for r in pace}
    late = {r: n * max(each - usual[r], 0.0) if usual[r] else 0.0 for r, (n, each) in pace.items()}
    if not compared:
        raise BadInput("--what-if even-rank: no rank has a peer with the same kernels", "name two ranks of a stage")
    if rank is None:
        rank = max(sorted(compared), key=lambda r: compared[r].excess_ns + late.get(r, 0.0))
    if rank not in compared:
        raise BadInput(f"--what-if even-rank={rank}: the rank recorded less of the step than its peers", "name another")
    factors = {name: factor for name, factor in compared[rank].factors().items() if factor < 1}
    host = pace[rank][1] / usual[rank] if late[rank] else 1.0
    return f"rank {rank} is as fast as the median of its peers", Change(
        host_factor={rank: host}, kernel_factor={rank: factors}
    )


def _usual(others: list[float]) -> float:
    return median(others) if others else 0.0

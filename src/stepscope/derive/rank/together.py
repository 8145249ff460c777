"""Small tables of ranks, derived of several at once: a query about the few rows of one rank costs as much as of many.

A function makes one table of several ranks, in their order and with a column `rank`; each of them keeps its part.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData, rank_of
from stepscope.files import budget
from stepscope.model.profile import Profile

#: So many ranks share the cost of a query.
TOGETHER = 16

Derived = Callable[[list[RankData]], pl.DataFrame]


def part(data: RankData, function: Derived) -> pl.DataFrame:
    """The rank's part of the table that `function` makes of it and its neighbours."""
    return data.once(_part, function)


def parts(ranks: list[RankData], function: Derived) -> pl.DataFrame:
    """The parts of several ranks, as one table."""
    return pl.concat([part(data, function) for data in ranks])


def _part(data: RankData, function: Derived) -> pl.DataFrame:
    ranks = _neighbours(data)
    table = function(ranks)
    cuts = np.searchsorted(table["rank"].to_numpy(), [*(other.rank for other in ranks), ranks[-1].rank + 1])
    tables = [table[first:last] for first, last in pairwise(cuts.tolist())]
    for other, mine in zip(ranks, tables, strict=True):
        other.keep(mine, _part, function)
    return tables[ranks.index(data)]


def _neighbours(data: RankData) -> list[RankData]:
    """The rank among those that are asked with it, in order; alone where memory is tight."""
    if budget.tight():
        return [data]
    profile = data.profile
    return [data if rank == data.rank else rank_of(profile, rank) for rank in profile.once(_groups)[data.rank]]


def _groups(profile: Profile) -> dict[int, list[int]]:
    ids = profile.rank_ids()
    groups = [ids[first : first + TOGETHER] for first in range(0, len(ids), TOGETHER)]
    return {rank: group for group in groups for rank in group}

"""The partition of a window, split by the hierarchy of ranges: each instant goes to one op, and so to one range.

Every nanosecond has one owner (see `owners`), so the top level sums to the window.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from stepscope.derive.accounting.owners import owners
from stepscope.derive.accounting.partition import Partition
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.intervals.arrays import I64, NONE
from stepscope.model.profile import Profile
from stepscope.model.result import Col

TREE_COLUMNS = (
    Col("rank", "rank of the process"),
    Col("pid", "process id on its host"),
    Col("depth", "depth in the hierarchy, 0 at the top"),
    Col("path", "texts of the ranges from the top, joined by ` > `"),
    Col("range", "text of the range; (no range) for what was launched outside any"),
    Col("total_ns", "time that belongs to it and to the ranges in it"),
    Col("compute_ns", "a compute kernel runs"),
    Col("comm_exposed_ns", "else, communication runs"),
    Col("copy_exposed_ns", "else, a copy or memset runs"),
    Col("idle_ns", "nothing runs"),
)

_PARTS = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
NO_RANGE = "(no range)"


def tree_rows(profile: Profile, data: RankData, span: Window, parts: Partition) -> list[dict[str, Any]]:
    """Rows of the tree, depth first, the largest child first."""
    total: dict[tuple[str, ...], I64] = defaultdict(lambda: np.zeros(len(_PARTS), np.int64))
    for column, (ops, _, length) in enumerate(owners(data, parts)):
        ranges = np.full(len(ops), NONE, dtype=np.int64)
        ranges[ops != NONE] = data.enclosing(ops[ops != NONE])
        rows, at = np.unique(ranges, return_inverse=True)
        for row, sum_ns in zip(rows.tolist(), np.bincount(at, weights=length).astype(np.int64).tolist(), strict=True):
            path = data.path_of(row) or (NO_RANGE,)
            for depth in range(len(path)):
                total[path[: depth + 1]][column] += sum_ns
    order = sorted(total, key=lambda p: [(-int(total[p[: k + 1]].sum()), p[k]) for k in range(len(p))])
    return [
        {
            "rank": data.rank,
            "pid": data.pid,
            "depth": len(path) - 1,
            "path": " > ".join(path),
            "range": path[-1],
            "total_ns": int(total[path].sum()),
            **dict(zip(_PARTS, total[path].tolist(), strict=True)),
        }
        for path in order
    ]

"""One rank's part of a `SimTrace`, and the conventions both file writers share.

The writers must agree on what the contract leaves open (where the setup label lies, how event ids recur, what a launch
looks like), or the same job would answer differently from its nsys file and its Kineto file.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from stepscope.simulate.trace.trace import I32, I64, SimCalls, SimEvents, SimOps, SimRanges, SimRank, SimSyncs, SimTrace

Table = TypeVar("Table", SimOps, SimCalls, SimRanges, SimSyncs, SimEvents)

#: CUPTI's number of the default stream; PyTorch computes there.
NULL_STREAM = 7
#: The first (and only) CUDA context of each process.
CONTEXT = 1
#: UTC of t=0 where a trace gives none (2027-01-01).
DEFAULT_EPOCH_NS = 1_798_761_600_000_000_000
#: PyTorch keeps a pool of CUDA events, so their ids recur; only the id of a *record* is unique.
EVENT_POOL = 61
#: The setup label is pushed this long before the first thing it encloses, and popped as long after the last.
SETUP_MARGIN_NS = 1_000


@dataclass
class RankView:
    """The rows of one rank: slices of the trace's columns, not copies, where the rows are contiguous."""

    rank: SimRank
    ops: SimOps
    calls: SimCalls
    ranges: SimRanges
    syncs: SimSyncs
    events: SimEvents


class Launch(NamedTuple):
    """How a kernel was launched: what a profiler records beside its times."""

    registers: int
    grid: int
    block: int
    static_shared: int
    dynamic_shared: int


def view(trace: SimTrace, rank: SimRank) -> RankView:
    """The rows of `rank`."""
    return RankView(
        rank=rank,
        ops=_take(trace.ops, rank.rank),
        calls=_take(trace.calls, rank.rank),
        ranges=_take(trace.ranges, rank.rank),
        syncs=_take(trace.syncs, rank.rank),
        events=_take(trace.events, rank.rank),
    )


def _take(table: Table, rank: int) -> Table:
    rows = _rows(table.rank, rank)
    return type(table)(**{f.name: getattr(table, f.name)[rows] for f in fields(table)})


def _rows(column: I32, rank: int) -> slice | npt.NDArray[np.intp]:
    """A slice where the column is sorted by rank, else the row numbers: sortedness is checked, not trusted."""
    mine = column == rank
    low, high = np.searchsorted(column, [rank, rank + 1])
    if np.count_nonzero(mine) == high - low and mine[low:high].all():
        return slice(int(low), int(high))
    return np.flatnonzero(mine)


def setup_range(view: RankView, names: list[str]) -> tuple[int, int] | None:
    """Where to write the rank's setup label; None if it has none or the engine already wrote it as a range."""
    label = view.rank.setup
    starts = [int(t.start.min()) for t in (view.ranges, view.calls) if len(t.start)]
    if not label or not starts or any(names[i] == label for i in np.unique(view.ranges.name)):
        return None
    ends = [int(t.end.max()) for t in (view.ranges, view.calls) if len(t.end)]
    first = min(starts)
    # Zero is the start of the capture: the label is pushed after it unless what it encloses began before.
    start = max(first - SETUP_MARGIN_NS, 0) if first >= 0 else first - SETUP_MARGIN_NS
    return start, max(ends) + SETUP_MARGIN_NS


def epoch_ns(trace: SimTrace, node: int) -> int:
    """UTC of t=0 as the node believes it."""
    return trace.epoch_ns[node] if node < len(trace.epoch_ns) else DEFAULT_EPOCH_NS


def event_ids(events: I32) -> I64:
    """CUDA event ids for ids of records: they recur, as those of a pool do."""
    return events.astype(np.int64) % EVENT_POOL + 1


def launch_of(kernel: str, batch: float = 1.0) -> Launch:
    """A plausible launch, the same for a name every time; its grid is as large as the batch.

    Products of matrices are persistent: as many blocks as fit, whatever the size. Optimizers go over the weights.
    """
    if "nccl" in kernel.lower():
        return Launch(96, 16, 544, 21_568, 82_240)
    seed = zlib.crc32(kernel.encode())
    if "gemm" in kernel or "nvjet" in kernel:
        return Launch(168, 132 * (1 + seed % 4), 384, 0, 213_188)
    if "flash" in kernel:
        return Launch(168, round(132 * (1 + seed % 4) * batch), 384, 0, 213_188)
    grid = 132 * (1 + seed % 31) * (1.0 if "multi_tensor" in kernel or "NormTwoOps" in kernel else batch)
    return Launch(32 + 8 * (seed % 4), round(grid), 128 << (seed >> 8) % 3, 0, 0)

"""Which host call launched which GPU op: the same correlation id in the same process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import I64, Mask
from stepscope.model.threshold import Threshold

#: A lookup table costs 4 bytes per possible id: used while ids are this dense, else a sort.
_DENSE = 8

EARLY = Threshold(
    100.0,
    "µs",
    "an op that starts this long before a call was not launched by it: clocks of host and GPU agree to microseconds",
    ("tests/model/test_link.py",),
)
_FEW = Threshold(
    10.0,
    "% of the ops",
    "more early ones are not flaws of single records: the clocks disagree, and ids still tell the launch",
    ("tests/model/test_link.py",),
)


#: `link` marks ops without a launching call with this row.
NO_CALL = np.uint32(0xFFFFFFFF)


def link(op_correlation: I64, call_correlation: I64) -> npt.NDArray[np.uint32]:
    """Row of the call that launched each op of one process, `NO_CALL` where there is none.

    Ids are positive; zero or less means the profiler gave none. Of several calls with one id (a runtime call that
    enters the driver) the first row wins: calls are sorted by start, so that is the outermost.
    """
    calls = _rows(call_correlation > 0)
    call = np.full(len(op_correlation), NO_CALL, dtype=np.uint32)
    ids = call_correlation[calls]
    if len(ids) == 0 or len(op_correlation) == 0:
        return call
    low, high = int(ids.min()), int(ids.max())
    ops = _rows((op_correlation >= low) & (op_correlation <= high))
    wanted = op_correlation[ops]
    rows = np.arange(len(call_correlation), dtype=np.uint32)[calls]
    if high - low < _DENSE * (len(ids) + len(wanted)) + 1024:
        row_of = np.full(high - low + 1, NO_CALL, dtype=np.uint32)
        row_of[(ids - low)[::-1]] = rows[::-1]  # backwards, so that the first of equal ids is written last
        call[ops] = row_of[wanted - low]
        return call
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, wanted, sorter=order)
    at[at == len(ids)] = 0
    hit = ids[order[at]] == wanted
    call[ops] = np.where(hit, rows[order[at]], NO_CALL)
    return call


def nearest(
    launch: npt.NDArray[np.uint32], op_correlation: I64, op_start: I64, call_correlation: I64, calls: tuple[I64, I64]
) -> tuple[npt.NDArray[np.uint32], int]:
    """Launches of one process where ids repeat: of calls with an op's id, the latest that began before it.

    `calls` are their starts and ends, in order of start. Records of one call (a runtime call that enters the driver)
    lie within each other, and count as one. The second figure is how many ids were given to several calls.
    """
    start, end = calls
    rows = _of_repeated(call_correlation)
    if len(rows) == 0:
        return launch, 0
    order = rows[np.argsort(call_correlation[rows], kind="stable")]  # by id, then by start
    ids = call_correlation[order]
    again = np.r_[False, ids[1:] == ids[:-1]]
    # Of the records of one id, those that begin after the ones before them are over are calls of their own.
    first = np.flatnonzero(~again)
    until = _latest_before(end[order], first)
    own = ~again | (start[order] > until)
    order, ids = order[own], ids[own]
    repeated = np.unique(ids[1:][ids[1:] == ids[:-1]])
    if len(repeated) == 0:
        return launch, 0
    ops = np.flatnonzero(np.isin(op_correlation, repeated))
    number = np.searchsorted(repeated, op_correlation[ops])
    several = np.isin(ids, repeated)
    # One number per id and place in time, so that both are looked up at once.
    places = len(start) + 1
    key = np.searchsorted(repeated, ids[several]) * places + order[several]
    before = np.searchsorted(start, op_start[ops] + EARLY.ns, side="right")
    at = np.maximum(np.searchsorted(key, number * places + before) - 1, 0)
    at += (key[at] // places < number).astype(np.int64)  # none began before: the first of the id
    relinked = launch.copy()
    relinked[ops] = order[several][at].astype(np.uint32)
    return relinked, len(repeated)


def _of_repeated(ids: I64) -> npt.NDArray[np.intp]:
    """Rows whose id others have, too. Quick where there are none, as is usual."""
    rows = np.flatnonzero(ids > 0)
    given = ids[rows]
    if len(given) == 0:
        return rows
    low, high = int(given.min()), int(given.max())
    if high - low < _DENSE * len(given) + 1024:
        counts = np.bincount(given - low)
        return rows[counts[given - low] > 1] if int(counts.max()) > 1 else rows[:0]
    _, number, counts = np.unique(given, return_inverse=True, return_counts=True)
    return rows[counts[number] > 1]


def _latest_before(end: I64, first: npt.NDArray[np.intp]) -> I64:
    """The largest end of the rows before each one within its group; groups begin at `first`."""
    by_end = np.argsort(end, kind="stable")
    place = np.empty(len(end), dtype=np.int64)
    place[by_end] = np.arange(len(end))
    group = np.zeros(len(end), dtype=np.int64)
    group[first] = 1
    # Places of ends, groups lifted above each other: one running maximum serves them all.
    lift = np.cumsum(group) * len(end)
    largest = np.maximum.accumulate(place + lift) - lift
    before: I64 = end[by_end][np.r_[largest[:1], largest[:-1]]]
    return before


def without_early(launch: npt.NDArray[np.uint32], op_start: I64, call_start: I64) -> tuple[npt.NDArray[np.uint32], int]:
    """Launches of one process without those that began after their op did, and how many those are."""
    linked = launch != NO_CALL
    if not linked.any():
        return launch, 0
    began = call_start[np.where(linked, launch, 0)] if not linked.all() else call_start[launch]
    early = linked & (op_start < began - EARLY.ns)
    count = int(np.count_nonzero(early))
    if count == 0 or count > _FEW.share * int(np.count_nonzero(linked)):
        return launch, 0
    return np.where(early, NO_CALL, launch), count


def _rows(wanted: Mask) -> npt.NDArray[np.intp] | slice:
    """The rows that are wanted; a slice where all are, as is usual: nothing is copied then."""
    return slice(None) if wanted.all() else np.flatnonzero(wanted)

"""Which host call launched which GPU op: the same correlation id in the same process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepscope.intervals.arrays import I64, Mask

#: A lookup table costs 4 bytes per possible id: used while ids are this dense, else a sort.
_DENSE = 8

#: An op that starts this long before a call was not launched by it: clocks of host and GPU agree to microseconds.
EARLY_NS = 100_000

#: More early ops than this are no flaw of single records: the clocks disagree, and ids still tell the launch.
_FEW = 0.1

#: `link` marks ops without a launching call with this row.
NO_CALL = np.uint32(0xFFFFFFFF)


def link(op_correlation: I64, call_correlation: I64) -> npt.NDArray[np.uint32]:
    """Row of the call that launched each op of one process, `NO_CALL` where there is none.

    Ids are positive; zero or less means the profiler gave none. Of several calls with one id (a runtime call that
    enters the driver) the first row wins: calls are sorted by start, so that is the outermost.
    """
    calls = _rows(call_correlation > 0)
    found = np.full(len(op_correlation), NO_CALL, dtype=np.uint32)
    ids = call_correlation[calls]
    if len(ids) == 0 or len(op_correlation) == 0:
        return found
    low, high = int(ids.min()), int(ids.max())
    ops = _rows((op_correlation >= low) & (op_correlation <= high))
    wanted = op_correlation[ops]
    rows = np.arange(len(call_correlation), dtype=np.uint32)[calls]
    if high - low < _DENSE * (len(ids) + len(wanted)) + 1024:
        row_of = np.full(high - low + 1, NO_CALL, dtype=np.uint32)
        row_of[(ids - low)[::-1]] = rows[::-1]  # backwards, so that the first of equal ids is written last
        found[ops] = row_of[wanted - low]
        return found
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, wanted, sorter=order)
    at[at == len(ids)] = 0
    hit = ids[order[at]] == wanted
    found[ops] = np.where(hit, rows[order[at]], NO_CALL)
    return found


def without_early(launch: npt.NDArray[np.uint32], op_start: I64, call_start: I64) -> tuple[npt.NDArray[np.uint32], int]:
    """Launches of one process without those that began after their op did, and how many those are."""
    linked = launch != NO_CALL
    if not linked.any():
        return launch, 0
    began = call_start[np.where(linked, launch, 0)] if not linked.all() else call_start[launch]
    early = linked & (op_start < began - EARLY_NS)
    count = int(np.count_nonzero(early))
    if count == 0 or count > _FEW * int(np.count_nonzero(linked)):
        return launch, 0
    return np.where(early, NO_CALL, launch), count


def _rows(wanted: Mask) -> npt.NDArray[np.intp] | slice:
    """The rows that are wanted; a slice where all are, as is usual: nothing is copied then."""
    return slice(None) if wanted.all() else np.flatnonzero(wanted)

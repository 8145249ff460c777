"""Which host call launched which GPU op: the same correlation id in the same process."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: A lookup table costs 4 bytes per possible id: used while ids are this dense, else a sort.
_DENSE = 8

#: `link` marks ops without a launching call with this row.
NO_CALL = np.uint32(0xFFFFFFFF)


def link(op_correlation: npt.NDArray[np.int64], call_correlation: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Row of the call that launched each op of one process, `NO_CALL` where there is none.

    Ids are positive; zero or less means the profiler gave none. Of several calls with one id (a runtime call that
    enters the driver) the first row wins: calls are sorted by start, so that is the outermost.
    """
    calls = np.flatnonzero(call_correlation > 0)
    found = np.full(len(op_correlation), NO_CALL, dtype=np.uint32)
    if len(calls) == 0 or len(op_correlation) == 0:
        return found
    ids = call_correlation[calls]
    low, high = int(ids.min()), int(ids.max())
    ops = np.flatnonzero((op_correlation >= low) & (op_correlation <= high))
    wanted = op_correlation[ops]
    if high - low < _DENSE * (len(ids) + len(wanted)) + 1024:
        row_of = np.full(high - low + 1, NO_CALL, dtype=np.uint32)
        row_of[(ids - low)[::-1]] = calls[::-1]  # backwards, so that the first of equal ids is written last
        found[ops] = row_of[wanted - low]
        return found
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, wanted, sorter=order)
    at[at == len(ids)] = 0
    hit = ids[order[at]] == wanted
    found[ops[hit]] = calls[order[at[hit]]]
    return found

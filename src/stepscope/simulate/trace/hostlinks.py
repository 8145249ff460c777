"""Which call launched an op, and which range enclosed a moment: what Kineto resolves while it records.

The simulator does this for itself, apart from the code that analyses traces: a shared mistake would hide itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepscope.simulate.trace.trace import I32, I64, SimCalls, SimOps

Rows = npt.NDArray[np.intp]


def launches(ops: SimOps, calls: SimCalls) -> Rows:
    """For each op the row of the call with its correlation id, or -1."""
    order = np.argsort(calls.correlation, kind="stable")
    if not len(order):
        return np.full(len(ops.correlation), -1, dtype=np.intp)
    ids = calls.correlation[order]
    at = np.minimum(np.searchsorted(ids, ops.correlation), len(ids) - 1)
    return np.where(ids[at] == ops.correlation, order[at], -1)


def innermost(start: I64, end: I64, tid: I32, when: I64, thread: I32) -> Rows:
    """For each moment of a thread the row of the deepest range open then, or -1. Ranges of a thread nest."""
    links = np.full(len(when), -1, dtype=np.intp)
    for one in np.unique(thread).tolist():
        rows = np.flatnonzero(tid == one)
        asked = np.flatnonzero(thread == one)
        if not len(rows) or not len(asked):
            continue
        # Outer first where two start together.
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        first, last = start[rows], end[rows]
        parent = _parents(first.tolist(), last.tolist())
        at = np.searchsorted(first, when[asked], side="right") - 1
        # The latest started may be closed already: climb until one is open.
        while True:
            closed = (at >= 0) & (last[at] <= when[asked])
            if not closed.any():
                break
            at = np.where(closed, parent[at], at)
        links[asked] = np.where(at >= 0, rows[at], -1)
    return links


def _parents(start: list[int], end: list[int]) -> Rows:
    parent = np.empty(len(start), dtype=np.intp)
    open_rows: list[int] = []
    for i, begin in enumerate(start):
        while open_rows and end[open_rows[-1]] <= begin:
            open_rows.pop()
        parent[i] = open_rows[-1] if open_rows else -1
        open_rows.append(i)
    return parent

"""What each interval of a forest has with everything inside it: sums and extremes, however deep it is.

In preorder an interval comes just before all that is inside it, so that these are a slice, and a stack of a million
takes as long as a million side by side.
"""

from __future__ import annotations

import numpy as np

from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.intervals.last_above import Maxima


class Subtrees:
    """Slices of a preorder. `order` has the rows in preorder (`Nesting.order` is one), `depth` is by row."""

    def __init__(self, order: I64, depth: I64) -> None:
        n = len(order)
        self._order, self._at = order, np.arange(n)
        deep = depth[order]
        # The slice ends before the next row that is not deeper: the last such one, counted from the end.
        after = Maxima(-deep[::-1]).last_above(n - 2 - self._at, -deep - 1)
        self._stop: I64 = np.where(after == NONE, n, n - 1 - after)

    def total(self, own: I64) -> I64:
        """The sum over each row and what is in it."""
        sums = np.concatenate([[0], np.cumsum(own[self._order])])
        return self._by_row(sums[self._stop] - sums[:-1])

    def least(self, own: I64) -> I64:
        """The lowest of it."""
        return self._extreme(own, np.minimum)

    def most(self, own: I64) -> I64:
        """The highest of it."""
        return self._extreme(own, np.maximum)

    def _extreme(self, own: I64, better: np.ufunc) -> I64:
        """Two slices of a power of two, of which all are known, cover any slice."""
        totals = np.empty(len(self._at), np.int64)
        power = np.frexp(self._stop - self._at)[1] - 1
        best, width = own[self._order], 1
        for k in range(int(power.max(initial=-1)) + 1):
            mine = np.flatnonzero(power == k)
            totals[mine] = better(best[mine], best[self._stop[mine] - width])
            best, width = better(best[:-width], best[width:]), 2 * width
        return self._by_row(totals)

    def outermost(self, kind: I64) -> Mask:
        """Rows that are in no row of the same kind."""
        of = kind[self._order]
        by_kind = np.lexsort((self._at, of))
        group = np.cumsum(np.diff(of[by_kind], prepend=of[by_kind][:1]) != 0)
        reach = np.maximum.accumulate(self._stop[by_kind] + group * (len(of) + 1))
        place = self._at[by_kind] + group * (len(of) + 1)
        outermost = np.ones(len(of), dtype=bool)
        outermost[self._order[by_kind[1:]]] = reach[:-1] <= place[1:]
        return outermost

    def _by_row(self, in_order: I64) -> I64:
        by_row = np.empty_like(in_order)
        by_row[self._order] = in_order
        return by_row

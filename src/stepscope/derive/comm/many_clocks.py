"""Offsets and drifts of very many clocks: the equations of `clock_fit`, solved without ever writing down their matrix.

The matrix has a row and a column per clock: of ten thousand files it takes gigabytes and hours. But it is short of
entries, and to multiply by it takes one pass over the ends of collectives, so conjugate gradients solve it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepscope.intervals.arrays import F64, I64, Mask

#: Up to so many clocks the matrix is small enough to be solved as it is.
FEW = 64

#: A solution is good enough at this relative residual; a chain of clocks that are only known by their neighbours takes
#: longest to get there.
_TOLERANCE, _MOST_ROUNDS = 1e-8, 200


class Equations(Struct, frozen=True, dict=True):
    """Least squares for offsets and slopes of clocks, the common ends of collectives eliminated.

    Every end has its collective `of`, its `clock`, a `weight` and a place `x` in time; `ridge` holds slopes near 0.
    """

    of: I64
    clock: I64
    weight: F64
    x: F64
    free: Mask
    ridge: float

    def solve(self, time: F64, near: tuple[F64, F64]) -> tuple[F64, F64]:
        """Offset and slope of every clock, those that are not free 0; the search begins `near` a solution."""
        left = self.weight * self._from_mean(time)
        rhs = self._by_clock(left)
        solution = _conjugate_gradients(self._times, rhs, np.stack(near) * self.free, self._preconditioned)
        return solution[0], solution[1]

    def variances(self) -> F64:
        """About how far off offsets and slopes may be, in units of the ends' own variance, a row each.

        The inverse of what the ends of one clock say by themselves, twice: the clock that it is compared with is known
        no better.
        """
        a, b, c = self._diagonal
        det = np.maximum(a * c - b * b, np.finfo(float).tiny)
        variances: F64 = 2 * np.stack([c / det, a / det]) * self.free
        return variances

    @cached_property
    def _diagonal(self) -> tuple[F64, F64, F64]:
        """The matrix's own entries of each clock: of offset, of both, and of slope."""
        h = len(self.free)
        # Several ends of a collective may be of one clock: they say together how it stands to the others.
        keys, pair = np.unique(self.of * h + self.clock, return_inverse=True)
        of, clock = keys // h, keys % h
        w, wx = np.bincount(pair, self.weight), np.bincount(pair, self.weight * self.x)
        own = (self.weight, self.weight * self.x, self.weight * self.x**2)
        common = (w * w, w * wx, wx * wx)
        a, b, c = (
            np.bincount(self.clock, mine, h) - np.bincount(clock, both / self._total[of], h)
            for mine, both in zip(own, common, strict=True)
        )
        tiny = 1e-12 * float((a + c).sum() / h) + np.finfo(float).tiny
        return a + tiny, b.astype(np.float64), c + self.ridge + tiny

    @cached_property
    def _total(self) -> F64:
        total: F64 = np.bincount(self.of, self.weight).astype(np.float64)
        return total

    def _from_mean(self, value: F64) -> F64:
        """What is left of a value of each end without the mean of its collective."""
        mean = np.bincount(self.of, self.weight * value) / self._total
        rest: F64 = value - mean[self.of]
        return rest

    def _by_clock(self, value: F64) -> F64:
        h = len(self.free)
        sums: F64 = np.stack([np.bincount(self.clock, value, h), np.bincount(self.clock, value * self.x, h)])
        return sums * self.free

    def _times(self, v: F64) -> F64:
        """The matrix times offsets and slopes."""
        at_end = v[0][self.clock] + v[1][self.clock] * self.x
        times = self._by_clock(self.weight * self._from_mean(at_end))
        times[1] += self.ridge * v[1]
        return times

    def _preconditioned(self, v: F64) -> F64:
        """The inverse of each clock's own entries, times offsets and slopes."""
        a, b, c = self._diagonal
        det = np.maximum(a * c - b * b, np.finfo(float).tiny)
        solved: F64 = np.stack([c * v[0] - b * v[1], a * v[1] - b * v[0]]) / det * self.free
        return solved


def _conjugate_gradients(times: Callable[[F64], F64], rhs: F64, start: F64, inverse: Callable[[F64], F64]) -> F64:
    x = start
    rest = rhs - times(x)
    wanted = _TOLERANCE * float(np.linalg.norm(rhs))
    z = inverse(rest)
    direction, size = z, float((rest * z).sum())
    for _ in range(_MOST_ROUNDS):
        if float(np.linalg.norm(rest)) <= wanted:
            break
        image = times(direction)
        along = float((direction * image).sum())
        if along <= 0:  # as near as rounding allows
            break
        x = x + (size / along) * direction
        rest = rest - (size / along) * image
        z = inverse(rest)
        before, size = size, float((rest * z).sum())
        direction = z + (size / before) * direction
    return x

"""One clock for all hosts, from the ends of collectives that nobody leaves before all have come.

A source's clock reads `τ + a + b·(τ − origin)` where the reference's reads τ. A collective ends at one moment, which
its ranks read off different clocks; all of them together, over overlapping groups, say how clocks differ. The common
ends are eliminated, and offsets and drifts solved for at once by least absolute deviations (iteratively reweighted
least squares), so that single odd ends do not count. Clocks whose difference is not significant are taken for one, and
what differs insignificantly from the reference is not corrected at all: nothing finer than the residual is claimed.
Files of one host thus share a clock again, also where they do not name the host.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.kinds import SEND_RECV, TOGETHER
from stepscope.derive.comm.many_clocks import FEW, Equations
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.threshold import Threshold

FLOOR = Threshold(
    1.0,
    "µs",
    "GPU timestamps of two processes are not comparable more finely",
    ("tests/derive/comm/test_clock_fit.py",),
)
_USUAL_DRIFT = Threshold(
    50.0,
    "parts per million",
    "quartz on a board: what drift to expect where the trace hardly tells",
    ("tests/derive/comm/test_clock_fit.py",),
)
_SIGNIFICANT = Threshold(
    3.0,
    "standard errors",
    "a smaller difference of two clocks is chance, once in 370",
    ("tests/derive/comm/test_clock_fit.py",),
)
_ENOUGH = Threshold(
    12,
    "ends of collectives per source",
    "medians of fewer ends jump with each of them",
    ("tests/derive/comm/test_clock_fit.py",),
)
_SEVERAL = Threshold(
    4,
    "ends of collectives per source",
    "a line through fewer is not a line",
    ("tests/derive/comm/test_clock_fit.py",),
)
_NO_CLOCK_IS_FURTHER = Threshold(
    1_000_000.0,
    "µs",
    "clocks that are set by anything are nearer; others count from another origin",
    ("tests/derive/comm/test_clock_fit.py",),
)
#: Rounds of reweighting, and the residual below which a deviation counts as none.
_ROUNDS, _TINY_NS = 25, 50.0
#: Work of one round: collectives are thinned out so that their number times the clocks' squared stays below this.
_MOST = 2e8


class Clocks(Struct, frozen=True):
    """Per source: offset (ns) and drift against the first source of its component, and how well that fits."""

    origin: int
    offset: F64
    drift: F64
    component: I64  # sources with the same number are aligned to each other
    residual_p50: F64
    residual_p95: F64
    n: I64  # collectives that say so
    residual: float  # p95 over all
    same: I64  # sources with the same number share a clock

    def correct(self, source: I64, t: I64) -> I64:
        """Rebased readings of the sources' clocks on the common one."""
        a, b = self.offset[source], self.drift[source]
        moved = a + b * ((t - self.origin) - a) / (1 + b)
        fixed: I64 = t - np.rint(moved).astype(np.int64)
        return fixed

    @staticmethod
    def unaligned(sources: int) -> Clocks:
        """Clocks as recorded."""
        return _as_recorded(0, np.zeros(sources, np.int64))


def align(meetings: pl.DataFrame, sides: pl.DataFrame, sources: int, origin: int) -> Clocks:
    """Solve for the clocks of `sources`. `sides` have `meeting`, `source` and rebased `end_ns`."""
    component = np.arange(sources, dtype=np.int64)
    if sources < 2:
        return _as_recorded(origin, component)
    observed, component = _observations(meetings, sides, sources)
    if observed.height == 0:
        return _as_recorded(origin, component)
    ends = _Ends(observed, origin, sources)
    each = _solve(ends, np.arange(sources, dtype=np.int64), component)
    same = _shared(each, ends.span, component, _SIGNIFICANT.value * float(np.median(_residuals(ends, each)[ends.best])))
    same = _told_apart(ends, each, same, component)
    fit = _solve(ends, same, component) if len(np.unique(same)) < sources else each
    residual = _residuals(ends, fit) * fit.inflation
    p50, p95 = _per_source(ends, residual)
    offset = fit.offset - fit.drift * fit.middle
    n = np.bincount(ends.source, minlength=sources)
    overall = float(np.percentile(residual[ends.best], 95))
    return Clocks(origin, offset, fit.drift, component, p50, p95, n, overall, same)


class _Fit(Struct, frozen=True):
    """Per source: offset at the middle of the capture, where it is known best, and drift; with standard errors."""

    middle: float
    offset: F64
    drift: F64
    offset_error: F64
    drift_error: F64
    inflation: float  # of residuals, for what the fit itself took away


class _Ends:
    """Ends of collectives: collective and source of each, and the time."""

    def __init__(self, frame: pl.DataFrame, origin: int, sources: int) -> None:
        self.of = frame["meeting"].rank("dense").cast(pl.Int64).to_numpy() - 1
        self.source = frame["source"].cast(pl.Int64).to_numpy()
        self.time = (frame["end_ns"].to_numpy() - origin).astype(np.float64)
        self.sources = sources
        self.count = int(self.of.max()) + 1
        self.span = max(float(np.ptp(self.time)), 1.0)
        # How good the fit is, is judged by the best kind of operation that a source has several of.
        tier = frame["tier"].to_numpy()
        counts = np.zeros((sources, len(TOGETHER)), np.int64)
        np.add.at(counts, (self.source, tier), 1)
        enough = counts >= _SEVERAL.value
        chosen = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)[self.source]
        self.best = (chosen < 0) | (chosen == tier)


def _observations(meetings: pl.DataFrame, sides: pl.DataFrame, sources: int) -> tuple[pl.DataFrame, I64]:
    """Ends to compare, and the components that they connect: the best operations first, others only where needed."""
    sides = sides.select("meeting", "source", "rank", "op", "end_ns")
    component = np.arange(sources, dtype=np.int64)
    kept: list[pl.DataFrame] = []
    seen = np.zeros(sources, np.int64)
    for tier, kinds in enumerate(TOGETHER):
        rows = meetings.filter(pl.col("kind").is_in(kinds))["meeting"]
        mine = sides.filter(pl.col("meeting").is_in(rows.implode()))
        if kinds == (SEND_RECV,):
            mine = _exclusive(mine)
        mine = mine.group_by("meeting", "source").agg(pl.col("end_ns").median().cast(pl.Int64))
        mine = mine.filter(pl.len().over("meeting") > 1).sort("meeting", "source")
        kept.append(mine.with_columns(pl.lit(tier).alias("tier")))
        component = _connected(mine, component)
        seen += np.bincount(mine["source"].to_numpy(), minlength=sources)
        if len(np.unique(component)) == 1 and seen.min() >= _ENOUGH.value:
            break
    return _thinned(pl.concat(kept), meetings, sources), component


def _exclusive(sides: pl.DataFrame) -> pl.DataFrame:
    """Transfers between two kernels that have no other partner: only those end together."""
    kernel = pl.struct("rank", "op")
    pairs = sides.with_columns(kernel.min().over("meeting").alias("one"), kernel.max().over("meeting").alias("two"))
    pairs = pairs.with_columns(
        pl.struct("one", "two").n_unique().over("rank", "op").alias("partners"), pl.len().over("meeting").alias("n")
    )
    pairs = pairs.filter(((pl.col("partners") == 1) & (pl.col("n") == 2)).all().over("meeting"))
    # Both directions between the same two kernels are one observation.
    return pairs.filter(pl.col("meeting") == pl.col("meeting").min().over("one", "two"))


def _connected(ends: pl.DataFrame, component: I64) -> I64:
    """Components after these collectives: each takes the lowest number that it can reach."""
    number = component.copy()
    meeting, source = ends["meeting"].to_numpy(), ends["source"].cast(pl.Int64).to_numpy()
    if len(meeting) == 0:
        return number
    first = np.flatnonzero(np.r_[True, meeting[1:] != meeting[:-1]])
    of = np.cumsum(np.r_[True, meeting[1:] != meeting[:-1]]) - 1
    while True:
        least = np.minimum.reduceat(number[source], first)
        after = number.copy()
        np.minimum.at(after, source, least[of])
        after = after[after]
        if np.array_equal(after, number):
            return number
        number = after


def _thinned(ends: pl.DataFrame, meetings: pl.DataFrame, sources: int) -> pl.DataFrame:
    """Evenly fewer collectives of each communicator, where there are more than it takes."""
    most = max(64, int(_MOST / (4 * sources * sources)))
    used = ends.select("meeting").unique().join(meetings.select("meeting", "communicator"), on="meeting")
    if used.height <= most:
        return ends
    each = max(4, most // used["communicator"].n_unique())
    place = pl.int_range(pl.len()).over("communicator")
    count = pl.len().over("communicator")
    kept = used.sort("meeting").filter((place * each // count) != ((place - 1) * each // count))
    return ends.filter(pl.col("meeting").is_in(kept["meeting"].implode()))


def _solve(ends: _Ends, same: I64, component: I64) -> _Fit:
    """Offset and drift of every source; sources that share a clock have one, the first of a component none."""
    clocks, of_source = np.unique(same, return_inverse=True)
    clock = of_source[ends.source]
    h = len(clocks)
    free = np.ones(h, dtype=bool)
    free[of_source[np.unique(component, return_index=True)[1]]] = False
    middle = float(np.median(ends.time))
    a, b = np.zeros(h), np.zeros(h)
    freedom = len(clock) - ends.count - 2 * int(free.sum())
    if not free.any():
        return _Fit(middle, a[of_source], b[of_source], a[of_source], b[of_source], 1.0)
    weight = np.ones(len(clock))
    slope = np.zeros(h)
    for _ in range(_ROUNDS):
        x = (ends.time - middle - a[clock]) / (1 + b[clock]) / ends.span
        if h > FEW:
            a, slope = _equations(ends, clock, weight, x, free).solve(ends.time, (a, slope))
        else:
            a, slope, _ = _step(ends, clock, h, weight, x, free)
        b = slope / ends.span
        r = _deviations(ends, ends.time - a[clock] - slope[clock] * x, weight)
        weight = 1 / np.sqrt(r * r + _TINY_NS**2)
    # With fewer ends than unknowns there is no saying how good the solution is.
    inflation = float(np.sqrt((len(clock) - ends.count) / freedom)) if freedom > 0 else np.inf
    noise = max(float(np.sqrt(np.mean(np.minimum(np.abs(r), 5 * np.median(np.abs(r)) + _TINY_NS) ** 2))), _TINY_NS)
    alike = np.ones(len(clock))
    variances = np.zeros((2, h))
    if h > FEW:
        variances = _equations(ends, clock, alike, x, free).variances()
    else:
        _, _, normal = _step(ends, clock, h, alike, x, free)
        variances[:, free] = np.diag(np.linalg.inv(normal)).reshape(2, -1)
    errors = noise * min(inflation, 1e9) * np.sqrt(np.maximum(variances, 0))
    return _Fit(
        middle, a[of_source], b[of_source], errors[0][of_source], errors[1][of_source] / ends.span, min(inflation, 1e9)
    )


def _equations(ends: _Ends, clock: I64, weight: F64, x: F64, free: Mask) -> Equations:
    return Equations(ends.of, clock, weight, x, free, _ridge(ends, weight))


def _ridge(ends: _Ends, weight: F64) -> float:
    """What drift to expect, weighed against the deviations that there are (in the units of the weights)."""
    return float(1 / np.mean(weight)) / (_USUAL_DRIFT.value / 1e6 * ends.span) ** 2


def _step(ends: _Ends, clock: I64, h: int, weight: F64, x: F64, free: Mask) -> tuple[F64, F64, F64]:
    """One weighted least-squares solution for offsets and slopes, the common ends eliminated; and its normal matrix."""
    shape = (ends.count, h)
    flat = ends.of * h + clock
    w, wx, wxx = (np.bincount(flat, v, shape[0] * h).reshape(shape) for v in (weight, weight * x, weight * x * x))
    total = np.bincount(ends.of, weight, ends.count)
    mean = np.bincount(ends.of, weight * ends.time, ends.count) / total
    left = weight * (ends.time - mean[ends.of])
    root = np.sqrt(total)[:, None]
    p, q = w / root, wx / root
    n11, n12, n22 = np.diag(w.sum(0)) - p.T @ p, np.diag(wx.sum(0)) - p.T @ q, np.diag(wxx.sum(0)) - q.T @ q
    n22 = n22 + np.eye(h) * _ridge(ends, weight)
    rhs = np.concatenate([np.bincount(clock, left, h)[free], np.bincount(clock, left * x, h)[free]])
    normal = np.block([[n11[free][:, free], n12[free][:, free]], [n12.T[free][:, free], n22[free][:, free]]])
    normal += np.eye(len(normal)) * 1e-12 * np.trace(normal) / len(normal)
    solution = np.linalg.solve(normal, rhs)
    a, slope = np.zeros(h), np.zeros(h)
    a[free], slope[free] = solution[: free.sum()], solution[free.sum() :]
    return a, slope, normal


def _deviations(ends: _Ends, fixed: F64, weight: F64) -> F64:
    """How far each end is from the (weighted) mean of its collective."""
    mean = np.bincount(ends.of, weight * fixed, ends.count) / np.bincount(ends.of, weight, ends.count)
    deviation: F64 = fixed - mean[ends.of]
    return deviation


def _residuals(ends: _Ends, fit: _Fit) -> F64:
    """|deviation| of each end, corrected, from the median of its collective."""
    a, b = fit.offset[ends.source], fit.drift[ends.source]
    fixed = (ends.time - fit.middle - a) / (1 + b)
    order = np.lexsort((fixed, ends.of))
    count = np.bincount(ends.of, minlength=ends.count)
    first = np.cumsum(count) - count
    value = fixed[order]
    median = (value[first + (count - 1) // 2] + value[first + count // 2]) / 2
    apart: F64 = np.abs(fixed - median[ends.of])
    return apart


def _shared(fit: _Fit, span: float, component: I64, residual: float) -> I64:
    """Sources that cannot be told apart, in offset or over the whole capture; each bears the number of the first."""
    a, b = fit.offset, fit.drift * span / 2
    ea, eb = fit.offset_error, fit.drift_error * span / 2
    same = np.full(len(a), -1, dtype=np.int64)
    least = max(FLOOR.ns, residual)

    for mine in _members(component):
        heads = np.empty(len(mine), np.int64)
        heads[0], n = mine[0], 1  # the reference first: what does not differ from it is not corrected
        same[mine[0]] = mine[0]
        for s in mine[1:][np.argsort(a[mine[1:]], kind="stable")].tolist():
            k = heads[:n]
            near = np.abs(a[k] - a[s]) <= least + _SIGNIFICANT.value * np.hypot(ea[k], ea[s])
            near &= np.abs(b[k] - b[s]) <= least + _SIGNIFICANT.value * np.hypot(eb[k], eb[s])
            first = int(near.argmax())
            same[s] = k[first] if near[first] else s
            if not near[first]:
                heads[n], n = s, n + 1
    return same


def _members(component: I64) -> list[I64]:
    """Sources of each component, in order."""
    order = np.argsort(component, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(component[order])) + 1)


def _told_apart(ends: _Ends, fit: _Fit, same: I64, component: I64) -> I64:
    """Clocks that few ends tell apart are as they were recorded, unless they read quite different times.

    A single pair of ends says little: who sends may leave long before who receives has come.
    """
    keys, n = np.unique(same[ends.source] * ends.count + ends.of, return_counts=True)
    clock, of = keys // ends.count, keys % ends.count
    # Collectives that have ends of the clock, and of others.
    compared = np.bincount(clock[n < np.bincount(ends.of, minlength=ends.count)[of]], minlength=ends.sources)
    reference = np.empty(ends.sources, np.int64)
    for mine in _members(component):
        reference[mine] = same[mine[0]]
    near = np.abs(fit.offset[same] - fit.offset[reference]) < _NO_CLOCK_IS_FURTHER.ns
    merged: I64 = np.where((compared[same] < _SEVERAL.value) & near, reference, same)
    return merged


def _per_source(ends: _Ends, residual: F64) -> tuple[F64, F64]:
    p50, p95 = np.full(ends.sources, np.nan), np.full(ends.sources, np.nan)
    rows = np.flatnonzero(ends.best)
    rows = rows[np.argsort(ends.source[rows], kind="stable")]
    for mine in np.split(rows, np.flatnonzero(np.diff(ends.source[rows])) + 1):
        p50[ends.source[mine[0]]], p95[ends.source[mine[0]]] = np.percentile(residual[mine], [50, 95])
    return p50, p95


def _as_recorded(origin: int, component: I64) -> Clocks:
    none, zero = np.full(len(component), np.nan), np.zeros(len(component))
    return Clocks(origin, zero, zero, component, none, none, component * 0, 0.0, np.arange(len(component)))

"""Kinds of steps, spikes and drift: what a run's steps are like (semantics §18).

Steps that do different work (other kernels, or more of them) or take different time are of different kinds, if each
recurs: every N steps, or in a fifth of them. A step that is longer than its like by more than the noise and does not
recur is a spike. Where the usual step grows or shrinks over the run beyond the noise, it drifts, and what is usual
follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from stepscope.derive.run.clusters import clusters, gap_stands_out, least_share, margin, noise_of
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.model.threshold import Threshold

_FEWEST = Threshold(
    3,
    "steps",
    "a kind has at least so many: two may be chance",
    ("tests/derive/run/test_kinds.py",),
)
_OFTEN = Threshold(
    20.0,
    "% of the steps",
    "a kind without a period has at least so many",
    ("tests/derive/run/test_kinds.py",),
)
_PERIODS = Threshold(
    3,
    "periods",
    "seen so often, a period is not chance",
    ("tests/derive/run/test_kinds.py",),
)
_PERIODS_OF_WORK = Threshold(
    2,
    "periods",
    "where the work differs, twice is enough",
    ("tests/derive/run/test_kinds.py",),
)
_FEWEST_TREND = Threshold(
    8,
    "steps",
    "any order of fewer comes by chance too often",
    ("tests/derive/run/test_kinds.py",),
)
_TREND = Threshold(
    3.3,
    "standard errors of Kendall's correlation",
    "once in a thousand by chance",
    ("tests/derive/run/test_kinds.py",),
)
_OTHER_WORK = Threshold(
    10.0,
    "% of the ops by name",
    "steps that differ by more do different work",
    ("tests/derive/run/test_kinds.py",),
)
_NOISE_OF_WORK = Threshold(
    3.0,
    "times the noise",
    "steps of other work take another time from here on",
    ("tests/derive/run/test_kinds.py",),
)
_LEAST_OF_WORK = Threshold(
    2.0,
    "% of the usual length",
    "and by this at least",
    ("tests/derive/run/test_kinds.py",),
)
_FEW_GAPS = Threshold(
    4,
    "steps",
    "gaps of fewer tell nothing of a tail",
    ("tests/derive/run/test_kinds.py",),
)


@dataclass(frozen=True)
class Kind:
    """Steps that do the same in about the same time: rows of the run's samples."""

    name: str
    steps: I64
    usual_ns: float
    #: it recurs after so many steps, where it does
    every: int | None = None


@dataclass(frozen=True)
class Drift:
    """How the usual step changes over the run."""

    slope_ns: float  # per step
    change_ns: float  # from the first to the last step


@dataclass(frozen=True)
class Kinds:
    """What the samples of a run are like, row by row."""

    kinds: list[Kind]
    #: which kind, by place in `kinds`; spikes are of the kind that they are like but for their length
    of: I64
    spike: Mask
    #: beyond what is usual for its kind at that point of the run
    excess: F64
    drift: Drift | None = None


def kinds_of(lengths: F64, number: I64, work: I64 | None = None) -> Kinds:
    """What steps of these lengths are like. `number` counts the program's steps; `work` says which do the same."""
    n = len(lengths)
    work = np.zeros(n, np.int64) if work is None else work
    base = np.sort(_groups(lengths, work)[0])
    drift = drift_of(number[base], lengths[base])
    level = lengths
    if drift is not None:
        level = lengths - drift.slope_ns * (number - np.median(number[base]))
        base = _groups(level, work)[0]
    groups = [g for g in _groups(level, work) if len(g)]
    base = groups[0]
    kinds, every = _recurring(level, number, work, groups)
    of, spike = _in_turn(_nearest(level, kinds), kinds, every, number), np.zeros(n, dtype=bool)
    usual = [float(np.median(level[k])) for k in kinds]
    excess = level - np.array(usual)[of]
    for place, kind in enumerate(kinds):
        members = of == place
        beyond = _out_of_tail(level, members, members & (excess > margin(level[kind])))
        if len(kind) < _FEWEST.count or 2 * len(kind) <= members.sum():  # too few to call the others unlike them
            beyond &= (excess > usual[place]) & (2 * beyond.sum() < members.sum())
        spike |= beyond
    named = [
        Kind(_name(usual, k), np.flatnonzero(of == k).astype(np.int64), usual[k], every[k]) for k in range(len(kinds))
    ]
    return Kinds(_told_apart(named), of, spike, np.maximum(excess, 0.0), drift)


def _out_of_tail(level: F64, members: Mask, beyond: Mask) -> Mask:
    """Of steps that are beyond their like, those that no tail of their like reaches: the most with a gap below them."""
    rows = np.flatnonzero(members)
    rows = rows[np.argsort(level[rows], kind="stable")]
    most = min(int(beyond.sum()), len(rows) - 1)
    if len(rows) <= _FEW_GAPS.count:
        return beyond
    few = next((j for j in range(most, 0, -1) if gap_stands_out(level[rows], j)), 0)
    out = np.zeros(len(level), dtype=bool)
    out[rows[len(rows) - few :]] = few > 0
    return out & beyond


def _recurring(level: F64, number: I64, work: I64, groups: list[I64]) -> tuple[list[I64], list[int | None]]:
    """Groups that are kinds, the usual one first, and their periods. What is like a kind counts for its period."""
    base, kinds = groups[0], [groups[0]]
    every: list[int | None] = [None]
    for group in groups[1:]:
        other = not np.isin(work[group], work[base]).any()
        fewest = _PERIODS_OF_WORK.count if other else _PERIODS.count
        period = period_of(number[group], number, fewest)
        if period is None and _nearest(level, kinds)[group[0]] == 0:  # with a spike among them
            period = period_of(number[_nearest(level, [base, group]) == 1], number, fewest)
        if period is not None or (len(group) >= _FEWEST.count and len(group) >= _OFTEN.share * len(level)):
            kinds.append(group)
            every.append(period)
    return kinds, every


def _nearest(level: F64, kinds: list[I64]) -> I64:
    """Of each step the kind: its own, or the one whose usual length is nearest by ratio; a spike is nearest to none,
    and is of the longest kind that lies below."""
    usual = np.array([float(np.median(level[k])) for k in kinds])
    ratio = np.abs(np.log(np.maximum(level, 1.0)[:, None] / np.maximum(usual, 1.0)))
    of: I64 = np.argmin(ratio, axis=1).astype(np.int64)
    for place, kind in enumerate(kinds):
        of[kind] = place
    return of


def _in_turn(of: I64, kinds: list[I64], every: list[int | None], number: I64) -> I64:
    """The same, without steps of a kind that recurs which do not come when it does: they are like it by chance."""
    of = of.copy()
    for place, (kind, period) in enumerate(zip(kinds, every, strict=True)):
        if place and period is not None:
            turns = np.isin(number % period, number[kind] % period)
            of[(of == place) & ~turns] = 0
    return of


def works(counts: F64) -> I64:
    """Which steps do the same work, by how often each runs ops of each name (steps x names)."""
    leaders: list[F64] = []
    of = np.zeros(len(counts), np.int64)
    for step, row in enumerate(counts):
        size = row.sum()
        far = [np.abs(row - leader).sum() / max(size, leader.sum(), 1.0) for leader in leaders]
        if far and min(far) <= _OTHER_WORK.share:
            of[step] = int(np.argmin(far))
        else:
            of[step] = len(leaders)
            leaders.append(row)
    return of


def period_of(some: I64, every: I64, fewest: int = _PERIODS.count) -> int | None:
    """After how many steps these recur among all; None where they do not, or are too few to tell."""
    if len(some) < fewest:
        return None
    some = np.sort(some)
    strides = np.diff(some)
    stride = int(strides[0])
    if stride < 2 or (strides != stride).any():
        return None
    none_before, none_after = some[0] - stride < every.min(), some[-1] + stride > every.max()
    return stride if none_before and none_after else None


def _groups(lengths: F64, work: I64) -> list[I64]:
    """Steps of one work and like lengths, the most frequent first (of several the shorter); like lengths are one."""
    clustered: list[I64] = []
    for which in np.unique(work):
        rows = np.flatnonzero(work == which).astype(np.int64)
        clustered += [rows[part] for part in clusters(lengths[rows])]
    clustered.sort(key=lambda g: (-len(g), float(np.median(lengths[g]))))
    groups: list[I64] = []
    for group in clustered:
        same = [bool(np.isin(work[group], work[g]).any()) for g in groups]
        like = next((k for k, g in enumerate(groups) if _alike(lengths[g], lengths[group], same[k])), None)
        if like is None:
            groups.append(group)
        else:
            groups[like] = np.sort(np.r_[groups[like], group])
    groups.sort(key=lambda g: (-len(g), float(np.median(lengths[g]))))
    return groups


def _alike(a: F64, b: F64, same_work: bool) -> bool:
    """Whether two groups differ by no more than what says nothing; where their work differs, little says something."""
    apart = abs(float(np.median(a) - np.median(b)))
    wider = a if len(a) >= len(b) else b
    if same_work:
        return apart <= margin(wider)
    return apart <= max(_NOISE_OF_WORK.value * noise_of(wider), _LEAST_OF_WORK.share * float(np.median(wider)))


def drift_of(at: I64, lengths: F64, step: float | None = None) -> Drift | None:
    """The trend of steps of one kind: Theil and Sen's slope, where Kendall's test finds one.

    Of a part of the steps, a trend is what is a share of the whole `step`.
    """
    n = len(at)
    if n < _FEWEST_TREND.count:
        return None
    i, j = _pairs(n)
    rise, run = lengths[j] - lengths[i], (at[j] - at[i]).astype(np.float64)
    score = float(np.sign(rise).sum()) * (n * (n - 1) / 2) / len(i)
    slope = float(np.median(rise / run))
    change = slope * float(at[-1] - at[0])
    rest = lengths - slope * (at - np.median(at))
    if abs(score) / sqrt(n * (n - 1) * (2 * n + 5) / 18 * _persistence(rest, float(np.median(lengths)))) < _TREND.value:
        return None
    if abs(change) < max(3.0 * noise_of(rest), least_share(n) * (step or float(np.median(lengths)))):
        return None
    return Drift(slope, change)


def _persistence(rest: F64, level: float) -> float:
    """By how much steps that resemble their neighbours, trend or not, widen the spread of Kendall's score.

    What is less than the least noise is none, whatever it resembles.
    """
    rest = rest - np.median(rest)
    if np.abs(rest).max() <= noise_of(rest + level):
        return 1.0
    spread = 3.0 * noise_of(rest - rest.min() + 1.0)
    off = np.clip(rest - np.median(rest), -spread, spread)  # a spike does not count by its length
    like = float((off[1:] * off[:-1]).sum() / max(float((off**2).sum()), 1e-9))
    like = min(max(like, 0.0), 0.9)
    return (1.0 + like) / (1.0 - like)


def _pairs(n: int, most: int = 200_000) -> tuple[I64, I64]:
    """Pairs of rows, i < j; of very many, an even choice of distances."""
    if n * (n - 1) // 2 <= most:
        i, j = np.triu_indices(n, 1)
        return i.astype(np.int64), j.astype(np.int64)
    lags = np.unique(np.linspace(1, n - 1, max(1, 2 * most // n)).astype(np.int64))
    i = np.concatenate([np.arange(n - lag) for lag in lags])
    j = np.concatenate([np.arange(n - lag) + lag for lag in lags])
    return i, j


def _name(usual: list[float], place: int) -> str:
    if len(usual) == 1 or place == 0:
        return "usual"
    return "longer" if usual[place] > usual[0] else "shorter"


def _told_apart(kinds: list[Kind]) -> list[Kind]:
    """With names that differ: `longer`, `longer 2`."""
    seen: dict[str, int] = {}
    named = []
    for kind in kinds:
        count = seen[kind.name] = seen.get(kind.name, 0) + 1
        name = kind.name if count == 1 else f"{kind.name} {count}"
        named.append(Kind(name, kind.steps, kind.usual_ns, kind.every))
    return named

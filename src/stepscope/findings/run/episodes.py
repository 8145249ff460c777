"""Episodes of a run: what makes steps longer than the usual one, or comes between them, with cause, period and cost.

Steps of a longer kind, spikes, and stretches between steps. What has one cause is one episode, however often it comes.
Each is looked into on the rank that is longest on its own: others wait for it in communication.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from stepscope.derive.rank.data import RankData
from stepscope.derive.run.account import RankRun
from stepscope.derive.run.job import Run, run_of
from stepscope.derive.run.kinds import Kind, period_of
from stepscope.derive.windows.periods import periods
from stepscope.findings.run.beyond import Beyond, Cause, beyond
from stepscope.findings.run.inside import Inside, inside_between, inside_step, nothing
from stepscope.findings.run.outside import outside
from stepscope.intervals.arrays import F64, I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

#: Most spikes that are looked into, the longest first.
_MOST = 24
_LITTLE = Threshold(
    0.5,
    "% of the usual step",
    "below this, what episodes cost makes no other mean",
    ("tests/findings/test_run_findings.py",),
)
_DIFFER = Threshold(
    25.0,
    "% of the usual step",
    "below this, a step that nothing explains is one of the usual ones",
    ("tests/findings/test_run_findings.py",),
)
_FEWEST = Threshold(
    3,
    "episodes",
    "causes that come at random, too: of fewer, a period is chance",
    ("tests/findings/test_run_findings.py",),
)
#: Most kinds of steps that are looked at by themselves, beside the usual one.
_MOST_KINDS = 3
#: Causes that come at random, too: of those it takes so many to tell a period.
_BY_CHANCE: tuple[Cause, ...] = ("host", "slower kernels", "sync", "communication", "input")
#: Causes that say nothing of what it is: two of them need not be one.
_UNKNOWN: tuple[Cause, ...] = ("host", "work", "slower kernels")


class Episode(Struct, frozen=True):
    """What recurs, or came once. Rows are those of the run's samples; of `between`, the step that it comes before."""

    between: bool
    rows: I64
    #: beyond the usual step, of each: mean over ranks
    excess: F64
    every: int | None
    #: how many samples the run has
    steps: int
    #: where it was looked into: rank, and which of its steps
    rank: int
    step: int
    label: str
    usual_step: int
    why: Beyond
    #: on the other ranks it is waiting in communication
    of_one_rank: bool = False
    #: steps of a kind of their own, by its name; None for spikes and what lies between
    kind: str | None = None
    #: what is left of its cost without the profiler, as far as the program's other steps tell
    plain: float = 1.0

    @property
    def cause(self) -> Cause:
        return self.why.cause

    @property
    def per_step_ns(self) -> float:
        """The mean per step over the run. What recurs counts by its period: a capture begins anywhere in it."""
        return self.each_ns / self.every if self.every else float(self.excess.sum()) * self.plain / self.steps

    @property
    def each_ns(self) -> float:
        """How long one of them is, in the mean, without the profiler."""
        return float(self.excess.mean()) * self.plain

    @property
    def first(self) -> bool:
        """Whether the run's first samples have it, and no others."""
        return not self.between and bool((np.sort(self.rows) == np.arange(len(self.rows))).all())


class OtherKind(Struct, frozen=True):
    """A kind of steps beside the usual one: its share of all steps, and the step that stands for it."""

    kind: Kind
    share: float
    label: str
    steps: int


def episodes_of(profile: Profile) -> list[Episode]:
    """All of the run, the most expensive first."""
    return profile.once(_episodes_of)


def _episodes_of(profile: Profile) -> list[Episode]:
    run = run_of(profile)
    if run.kinds is None or len(run.label) < 2:
        return []
    single = [*_kinds(run), *_spikes(run), *_between(run)]
    episodes = (_of_program(profile, run, e) for e in _together(run, single))
    return sorted(episodes, key=lambda e: -e.per_step_ns)


def mean_step(profile: Profile) -> float | None:
    """Length of the mean step of the run, what lies between steps included; None where steps are alike.

    What recurs counts by its period.
    """
    run, episodes = run_of(profile), episodes_of(profile)
    if run.kinds is None:
        return None
    lengths = run.lengths.copy()
    for e in episodes:
        if not e.between:
            lengths[e.rows] -= e.excess
    mean = float(lengths.mean()) + sum(e.per_step_ns for e in episodes)
    if len(run.kinds.kinds) > 1 or run.kinds.drift is not None:
        return mean
    usual = float(run.lengths[usual_step(run)])
    return None if abs(mean - usual) < (_LITTLE.share if episodes else _DIFFER.share) * usual else mean


def base_excess(run: Run) -> F64:
    """By sample: how much longer it is than the usual step at that point of the run."""
    kinds = run.kinds
    assert kinds is not None, "only asked of steps"
    usual, drift = kinds.kinds[0], kinds.drift
    level = run.lengths
    if drift is not None:
        calm = usual.steps[~kinds.spike[usual.steps]]
        level = level - drift.slope_ns * (run.number - np.median(run.number[calm]))
    return level - usual.usual_ns


def usual_step(run: Run) -> int:
    """The sample that stands for usual ones: the median of them."""
    kinds = run.kinds
    assert kinds is not None, "only asked of steps"
    usual = kinds.kinds[0].steps
    calm = usual[~kinds.spike[usual]]
    calm = calm if len(calm) else usual
    return median_of(run, calm)


def representative(profile: Profile, label: str) -> str:
    """The step that stands for the run: this one, unless it is a spike or of a kind that is not usual."""
    run = run_of(profile)
    if run.kinds is None or label not in run.label:
        return label
    like = run.kind_of(label)
    usual = like.kind == run.kinds.kinds[0].name and not like.spike
    return label if usual else run.label[usual_step(run)]


def other_kinds(profile: Profile) -> list[OtherKind]:
    """Kinds of steps that do other work than the usual one, or less of it: each is to be looked at by itself.

    What only makes steps longer, by a cause of its own, is an episode of usual steps.
    """
    run = run_of(profile)
    if run.kinds is None:
        return []
    by_cause = {e.kind for e in episodes_of(profile) if e.kind is not None and e.cause != "work"}
    others = [k for k in run.kinds.kinds[1:] if k.name not in by_cause]
    others.sort(key=lambda k: -float(run.lengths[k.steps].sum()))
    return [_other(run, k) for k in others[:_MOST_KINDS]]


def _other(run: Run, kind: Kind) -> OtherKind:
    share = 1.0 / kind.every if kind.every else len(kind.steps) / len(run.label)
    assert run.kinds is not None, "it has kinds"
    calm = kind.steps[~run.kinds.spike[kind.steps]]
    return OtherKind(kind, share, run.label[median_of(run, calm if len(calm) else kind.steps)], len(run.label))


def usual_length(profile: Profile) -> float | None:
    """Length of the usual step; None without samples. A few steps of all lengths have no kinds, but this."""
    run = run_of(profile)
    return float(run.lengths[usual_step(run)]) if run.kinds is not None else None


def median_of(run: Run, rows: I64) -> int:
    """Of some samples, the one of median length; of several the earliest."""
    order = rows[np.argsort(run.lengths[rows], kind="stable")]
    return int(order[(len(order) - 1) // 2])


def _kinds(run: Run) -> Iterator[Episode]:
    kinds, excess = run.kinds, base_excess(run)
    assert kinds is not None, "only asked of steps"
    for kind in kinds.kinds[1:]:
        if kind.usual_ns > kinds.kinds[0].usual_ns:
            yield _in_steps(run, kind.steps, excess[kind.steps], kind.every, kind.name)


def _spikes(run: Run) -> Iterator[Episode]:
    kinds, excess = run.kinds, base_excess(run)
    assert kinds is not None, "only asked of steps"
    rows = np.flatnonzero(kinds.spike & (kinds.of == 0)).astype(np.int64)
    for row in rows[np.argsort(-excess[rows], kind="stable")][:_MOST].tolist():
        yield _in_steps(run, np.array([row], np.int64), excess[[row]], None, None)


def _in_steps(run: Run, rows: I64, excess: F64, every: int | None, kind: str | None) -> Episode:
    label, usual = run.label[median_of(run, rows)], run.label[usual_step(run)]
    having = [r for r in run.ranks if label in r.label and usual in r.label]
    own = {r.data.rank: _own_excess(r, r.label.index(label), r.label.index(usual)) for r in having}
    worst = max(having, key=lambda r: (own[r.data.rank][0], -r.data.rank))
    alone = len(having) > 1 and sum(2 * mine > whole > 0 for mine, whole in own.values()) == 1
    k, usual_k = worst.label.index(label), worst.label.index(usual)
    why = beyond(inside_step(worst, k), _usual(worst, usual_k), names_elsewhere(worst.data, k))
    steps = len(run.label)
    return Episode(False, rows, excess, every, steps, worst.data.rank, k, label, usual_k, why, alone, kind)


def _own_excess(r: RankRun, k: int, usual: int) -> tuple[int, int]:
    """How much longer a rank's step is than another: outside of communication, and in all."""
    waiting = r.parts(r.until, r.edges[1:])["comm_exposed"]
    whole = int(r.step_ns[k] - r.step_ns[usual])
    return (whole if waiting is None else whole - int(waiting[k] - waiting[usual])), whole


def _usual(r: RankRun, k: int) -> Inside:
    return r.data.once(_inside_usual, k)


def _inside_usual(data: RankData, k: int) -> Inside:
    (run,) = (r for r in run_of(data.profile).ranks if r.data.rank == data.rank)
    return inside_step(run, k)


def _between(run: Run) -> Iterator[Episode]:
    order = {text: row for row, text in enumerate(run.label)}
    length, usual_label = np.zeros(len(run.label)), run.label[usual_step(run)]
    longest: dict[int, tuple[int, RankRun, int]] = {}
    for r in run.ranks:
        for k in np.flatnonzero(r.between_ns).tolist():
            if (row := order.get(r.label[k])) is not None:
                length[row] += float(r.between_ns[k]) / len(run.ranks)
                longest[row] = max(longest.get(row, (0, r, k)), (int(r.between_ns[k]), r, k), key=lambda x: x[0])
    for row, (_, r, k) in longest.items():
        usual = _usual(r, r.label.index(usual_label)) if usual_label in r.label else None
        why = beyond(inside_between(r, k), nothing(r.data), names_elsewhere(r.data, k), usual)
        excess = length[[row]]
        rows = np.array([row], np.int64)
        yield Episode(True, rows, excess, None, len(run.label), r.data.rank, k, r.label[k], k, why)


def _together(run: Run, single: list[Episode]) -> Iterator[Episode]:
    """What has one cause as one. Of what nothing is known, each kind of steps, and all spikes."""
    groups: dict[tuple[bool, str, str | None, str | None], list[Episode]] = {}
    for e in single:
        apart = (e.kind, e.why.range) if e.cause in _UNKNOWN else (None, None)
        groups.setdefault((e.between, e.cause, *apart), []).append(e)
    for group in groups.values():
        if len(group) == 1 and group[0].every:
            yield group[0]
            continue
        rows = np.concatenate([e.rows for e in group])
        excess = np.concatenate([e.excess for e in group])
        shown = sorted(group, key=lambda e: float(e.excess.mean()))[(len(group) - 1) // 2]
        every = period_of(run.number[rows], run.number, fewest=_FEWEST.count if shown.cause in _BY_CHANCE else 2)
        yield Episode(
            shown.between,
            rows,
            excess,
            every,
            shown.steps,
            shown.rank,
            shown.step,
            shown.label,
            shown.usual_step,
            shown.why,
            all(e.of_one_rank and e.rank == shown.rank for e in group),
            shown.kind if len(group) == 1 else None,
        )


def _of_program(profile: Profile, run: Run, e: Episode) -> Episode:
    """With what the program's other steps tell of it."""
    if e.between:
        return e
    elsewhere = outside(profile, run, e.rows, e.every)
    return replace(e, every=elsewhere.every, plain=elsewhere.plain)


def names_elsewhere(data: RankData, k: int) -> frozenset[int]:
    """Names of ops that steps other than the k-th run, too."""
    names, alone = data.once(_names)
    return frozenset(names[alone != k].tolist())


def _names(data: RankData) -> tuple[I64, I64]:
    """Names of ops, and the step that alone runs each; -1 where several do."""
    steps = periods(data)
    if steps is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ops, step = steps.launched
    name = data.name[ops].astype(np.int64)
    names, of = np.unique(name, return_inverse=True)
    low, high = np.full(len(names), len(steps.anchors)), np.full(len(names), -1)
    np.minimum.at(low, of, step)
    np.maximum.at(high, of, step)
    return names, np.where(low == high, low, -1).astype(np.int64)

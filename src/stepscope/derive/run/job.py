"""The run of a job: the steps of all ranks together, and what they are like.

Ranks meet in every step, so that a step has one kind for all of them: lengths are means over ranks, as `compare` takes
them. What lies between steps is not part of their lengths here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.rank.data import ranks_of
from stepscope.derive.run.account import RankRun, rank_run
from stepscope.derive.run.kinds import Kind, Kinds, kinds_of, works
from stepscope.derive.windows.periods import periods
from stepscope.intervals.arrays import F64, I64, numbered
from stepscope.model.profile import Profile


@dataclass(frozen=True)
class StepKind:
    """What one step of the run is like; nothing of a step that is not a sample."""

    kind: str | None = None
    spike: bool = False
    usual_ns: float | None = None


@dataclass(frozen=True)
class Run:
    """The ranks' accounts, and the kinds of the steps that they share."""

    ranks: list[RankRun]
    #: steps that are samples, in order: text, place in the run, length
    label: list[str]
    number: I64
    lengths: F64
    #: None without samples; rows are those of `label`
    kinds: Kinds | None

    def kind_of(self, label: str) -> StepKind:
        return self._by_label.get(label, StepKind())

    def named(self, label: str) -> Kind | None:
        """The kind of a step; None of one that is not a sample."""
        known = self.kind_of(label).kind
        return next((k for k in self.kinds.kinds if k.name == known), None) if self.kinds else None

    @property
    def _by_label(self) -> dict[str, StepKind]:
        if self.kinds is None:
            return {}
        names = [self.kinds.kinds[k].name for k in self.kinds.of.tolist()]
        usual = self.lengths - self.kinds.excess
        rows = zip(names, self.kinds.spike.tolist(), usual.tolist(), strict=True)
        return dict(zip(self.label, (StepKind(*row) for row in rows), strict=True))


def run_of(profile: Profile) -> Run:
    """The run that the profile holds."""
    return profile.once(_run_of)


def _run_of(profile: Profile) -> Run:
    ranks = [run for data in ranks_of(profile) if (run := rank_run(data)) is not None]
    stepped = [r for r in ranks if r.label]
    longest = max(stepped, key=lambda r: len(r.label), default=None)
    if longest is None:
        return Run(ranks, [], np.empty(0, np.int64), np.empty(0), None)
    order = {text: place for place, text in enumerate(longest.label)}
    total, count = np.zeros(len(order)), np.zeros(len(order), np.int64)
    counted = np.ones(len(order), dtype=bool)
    for r in stepped:
        rows = np.array([k for k, text in enumerate(r.label) if text in order], np.int64)
        at = np.array([order[r.label[k]] for k in rows], np.int64)
        assert r.samples is not None, "ranks with steps have them"
        total[at] += r.step_ns[rows]
        count[at] += 1
        counted[at] &= r.samples.counted[rows]
    lengths = total / np.maximum(count, 1)
    number = np.flatnonzero(counted & (lengths > 0)).astype(np.int64)
    label = [longest.label[k] for k in number]
    if not len(number):
        return Run(ranks, [], number, np.empty(0), None)
    work = works(_counts(stepped, order)[number])
    return Run(ranks, label, number, lengths[number], kinds_of(lengths[number], number, work))


def _counts(ranks: list[RankRun], order: dict[str, int]) -> F64:
    """How often each step runs ops of each name, over all ranks; without what lies between steps."""
    names, at = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for r in ranks:
        steps = periods(r.data)
        if steps is None or not len(r.data.start):
            continue
        ops, step = steps.launched
        place = np.array([order.get(text, -1) for text in r.label], np.int64)[step]
        counted = (place >= 0) & ~r.between.contains(r.data.start[ops])
        names.append(r.data.name[ops][counted].astype(np.int64))
        at.append(place[counted])
    used, column = numbered(np.concatenate(names))
    flat = np.concatenate(at) * max(len(used), 1) + column
    counts: F64 = np.bincount(flat, minlength=len(order) * max(len(used), 1)).astype(np.float64)
    return counts.reshape(len(order), max(len(used), 1))

"""What a step is: which ranges of a rank mark its steps or chunks, and in which order. All questions ask here.

Ranges mark the steps where the trainer's labels name them (`--labels`), or where one family of them says so (texts that
differ in their numbers are one family; the patterns are data, `model/trainers/default.toml`). The first of these that
applies:
1. Numbered, and called a step: `ProfilerStep#3`, `step 3`, `train step 3`, `iteration_3`, `Batch 3`. One instance is
   enough. Of several such families the one with most host time counts: that is the enclosing one.
2. Called a step without a number, and recurring: `train_step`, JAX's `hlo_module=jit_step`.
3. What an inference server runs once per batch: its execute, forward-step and decode ranges.
4. Where the trainer marks no chunks: a family whose number grows by the same amount from each to the next, the
   shallowest one, unless it is a part of a step by its name (a layer). It needs two instances.
5. Where it marks no chunks: the ends of `Optimizer.step#…`, which torch.profiler records, if one optimizer recurs.
A family that launched nothing is not the step, unless the rank has no GPU work at all. Steps that are a warm-up by name
are none where work follows them: then what is called a step after them, or the shallowest family that recurs there.

DualPipeV's trainer marks chunks, and no steps: the window is the capture. Its pace is told by the first forward pass
of micro-batch 0, from one to the next; what follows the last one is not a whole step.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.candidates import Candidates, candidates
from stepscope.intervals import union
from stepscope.intervals.arrays import I64
from stepscope.model.range_names import RECORD

#: What a question is about by default: `step`; `chunk`, where there are chunks; or `pace`, what recurs.
Unit = Literal["chunk", "step", "pace"]

#: Steps that a program runs before those that it measures.
_WARM_UP = r"(?i)warm[ _-]?up"
#: What a step is called that its first forward pass tells.
BY_CHUNKS = "from forward chunk 0"


@dataclass(frozen=True)
class Anchors:
    """Ranges of one rank that windows are taken from, by start."""

    label: list[str]
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Marks:
    """What ranges say about the steps of one rank."""

    #: steps that ranges mark
    steps: Anchors | None
    #: DualPipeV's overlapped chunks
    chunks: Anchors | None
    #: the pace of a trainer that marks only chunks: ranks cut it at different places, so it is not a window for all
    repeats: Anchors | None

    def anchors(self, unit: Unit) -> Anchors | None:
        """Instances of the unit, None where the window is the capture."""
        if unit == "step":
            return self.steps
        if unit == "chunk":
            return self.chunks or self.steps
        paced = self.steps or self.repeats
        return self.chunks or paced if paced is None or len(paced) == 1 else paced


def marks_of(data: RankData) -> Marks:
    """The steps and chunks that the rank's ranges mark."""
    return data.once(_marks_of)


def _marks_of(data: RankData) -> Marks:
    ranges = candidates(data)
    if not len(ranges):
        return Marks(None, None, None)
    chunks = _matching(ranges, data.profile.labels.chunk)
    steps = _labelled(ranges) or _measured(ranges)
    if steps is None and chunks is None:
        steps = _counted(ranges) or _optimizers(ranges)
    repeats = _repeats(ranges) if steps is None and chunks is not None else None
    return Marks(steps, chunks, repeats)


def _measured(ranges: Candidates) -> Anchors | None:
    """Ranges that are called steps; where these are a warm-up by their names, what recurs after it."""
    steps = _called_steps(ranges) or _recurring_family(ranges)
    if steps is None or not all(re.search(_WARM_UP, text) for text in steps.label):
        return steps
    over = int(steps.end.max())
    later = ranges.of(ranges.start >= over)
    if not len(later) or not _launched(later):
        return steps
    return _called_steps(later) or _recurring_family(later) or _shallowest(later)


def _shallowest(ranges: Candidates) -> Anchors | None:
    """The family nearest to the root that recurs and launches work; of several the one with most host time."""
    families = _recurring(ranges.named(but=[RECORD]))
    if not families:
        return None
    top = min(int(f.depth.min()) for f in families)
    return _numbered(_outermost(_by_start(_enclosing([f for f in families if f.depth.min() == top]))))


def _repeats(ranges: Candidates) -> Anchors | None:
    """Steps of a trainer that marks only chunks: from one first forward pass to the next, the last to the end."""
    data = ranges.data
    first = _matching(ranges, data.profile.labels.first_pass)
    if first is None or len(first := _outermost(first)) == 1:
        return None
    last = max(int(first.end.max()), data.host_span()[1] or 0)
    label = [f"{BY_CHUNKS} #{k}" for k in range(len(first))]
    return Anchors(label, first.start, np.append(first.start[1:], last))


def matching(data: RankData, pattern: str) -> Anchors | None:
    """Ranges whose text matches what the user gave."""
    return _matching(candidates(data), pattern)


def by_chunks(steps: Anchors) -> bool:
    """Whether no range marks these steps: chunks that recur tell them."""
    return steps.label[0].startswith(BY_CHUNKS)


def is_chunk(data: RankData, label: str) -> bool:
    """Whether a range of this text is one of the trainer's overlapped chunks."""
    return re.search(data.profile.labels.chunk, label) is not None


def recurring(anchors: Anchors) -> Anchors | None:
    """Instances of the label that occurs most often, the first of several such; None where none occurs twice."""
    label, times = Counter(anchors.label).most_common(1)[0]
    if times == 1:
        return None
    rows = [i for i, text in enumerate(anchors.label) if text == label]
    return Anchors([f"{label} #{k}" for k in range(times)], anchors.start[rows], anchors.end[rows])


def _matching(ranges: Candidates, pattern: str) -> Anchors | None:
    wanted = ranges.searched(pattern)
    return _by_start(wanted) if len(wanted) else None


def _by_start(ranges: Candidates) -> Anchors:
    ranges = ranges.of(np.lexsort((ranges.end, ranges.start)))
    return Anchors(ranges.texts(), ranges.start, ranges.end)


def _labelled(ranges: Candidates) -> Anchors | None:
    """The ranges that the trainer's labels call steps."""
    pattern = ranges.data.profile.labels.step
    if not pattern:
        return None
    named = ranges.named(pattern)
    return _numbered(_outermost(_by_start(named))) if len(named) and _launched(named) else None


def _called_steps(ranges: Candidates) -> Anchors | None:
    """The family of ranges that is called a step; of several the one with most host time."""
    named = ranges.named(ranges.data.profile.labels.recognized.numbered)
    families = [family for family in named.families() if _launched(family)]
    if not families:
        return None
    return _numbered(_outermost(_by_start(_enclosing(families))))


def _enclosing(families: list[Candidates]) -> Candidates:
    """Of several families the one with most host time."""
    covered = [union(f.start, f.end).length() for f in families]
    order = sorted(range(len(families)), key=lambda i: (-covered[i], families[i].depth.min(), families[i].family))
    return families[order[0]]


def _recurring_family(ranges: Candidates) -> Anchors | None:
    """Ranges that recur and are called a step, or are what a server runs per batch; numbered here, as they are not."""
    rules = ranges.data.profile.labels.recognized
    for pattern, never in ((rules.unnumbered, [rules.never]), (rules.serving, [])):
        families = _recurring(ranges.named(pattern, but=[*never, rules.part, RECORD]))
        if families:
            return _numbered(_outermost(_by_start(_enclosing(families))))
    return None


def _recurring(ranges: Candidates) -> list[Candidates]:
    """The families of several that launched work."""
    return [family for family in ranges.families() if len(family) > 1 and _launched(family)]


def _optimizers(ranges: Candidates) -> Anchors | None:
    """Steps that end with the optimizer's, if there is one optimizer; the first begins with the capture."""
    named = ranges.named(ranges.data.profile.labels.recognized.optimizer)
    if len(named) < 2 or len(named.families()) > 1 or not _launched(named):
        return None
    ends = _by_start(named)
    begin = ranges.data.host_span()[0]
    start = np.r_[ends.start[0] if begin is None else begin, ends.end[:-1]]
    return _numbered(Anchors(ends.label, start, ends.end))


def _numbered(anchors: Anchors) -> Anchors:
    """Labels that tell instances apart: a program that counts anew in every epoch has `batch 3 #0` and `batch 3 #1`."""
    if len(set(anchors.label)) == len(anchors.label):
        return anchors
    seen = Counter[str]()
    label = []
    for text in anchors.label:
        label.append(f"{text} #{seen[text]}")
        seen[text] += 1
    return replace(anchors, label=label)


def _counted(ranges: Candidates) -> Anchors | None:
    """The shallowest family with a running number; of several the one with most host time.

    A number runs if it grows by the same amount from each instance to the next: steps do, ids of ops do not.
    """
    part = ranges.data.profile.labels.recognized.part
    running = []
    for family in ranges.named(r"\d", but=[part, RECORD]).families():
        number, given = family.numbers()
        rows = np.flatnonzero(given)
        rows = rows[np.argsort(family.start[rows], kind="stable")]
        stride = np.diff(number[rows])
        if len(stride) and stride[0] > 0 and (stride == stride[0]).all():
            total = int((family.end[rows] - family.start[rows]).sum())
            running.append(((int(family.depth[rows].min()), -total, family.family), family))
    ordered = (family for _, family in sorted(running, key=lambda pair: pair[0]))
    return next((_by_start(family) for family in ordered if _launched(family)), None)


def _launched(ranges: Candidates) -> bool:
    """Whether any of the ranges launched something, or the rank has no GPU work to launch."""
    if len(ranges.data.start) == 0:
        return True
    return bool(ranges.data.launches_in(ranges.start, ranges.end).any())


def _outermost(anchors: Anchors) -> Anchors:
    """Without instances that lie within another: `step 3` may stand on several threads, or around `step 0`."""
    reach = np.maximum.accumulate(anchors.end)
    rows = np.flatnonzero(np.r_[True, anchors.end[1:] > reach[:-1]])
    return Anchors([anchors.label[i] for i in rows], anchors.start[rows], anchors.end[rows])

"""Where a rank's capture went: start-up, steps, what lies between them, and what follows the last (semantics §18).

The capture is all that was recorded of the rank, host and GPU. Every instant of it is in exactly one of these, so that
they sum to it to the nanosecond. A rank with GPU work is looked at on the GPU's timeline, where a step is its period;
one without on the host's.

Between steps lie a checkpoint, an evaluation, the end of an epoch. Ranges of steps leave gaps, in which most loops load
the next batch: the usual gap belongs to the step that it comes before. A gap that is far longer than the usual one
holds something else, which is over when the usual gap begins. Where ranges leave no gaps (torch.profiler's steps, those
of `capture run`), nothing is told to lie between: there, a checkpoint makes a step of another kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.accounting.partition import Partition, partition
from stepscope.derive.rank.data import RankData
from stepscope.derive.run.clusters import noise_of
from stepscope.derive.windows.periods import Periods, periods
from stepscope.derive.windows.samples import Samples, samples
from stepscope.intervals import Spans, covered, union
from stepscope.intervals.arrays import I64
from stepscope.model.threshold import Threshold

_NOISE = Threshold(
    6.0,
    "times the noise",
    "beyond the usual gap, so that chance makes no episode",
    ("tests/derive/run/test_simulated_runs.py",),
)
_SHARE = Threshold(
    20.0,
    "% of the usual step",
    "a gap that is longer by less may be of the loop itself",
    ("tests/derive/run/test_simulated_runs.py",),
)
_TIMES = Threshold(
    2.0,
    "usual gaps",
    "a batch that is late once makes the gap half as long again",
    ("tests/derive/run/test_simulated_runs.py",),
)


def between_host(steps: Periods) -> I64:
    """By step: until when the host did something between it and the step before; the step's own begin where nothing."""
    anchors, begin = steps.anchors, steps.cpu[:-1]
    until = begin.copy()
    gaps = np.maximum(anchors.start[1:] - np.maximum.accumulate(anchors.end)[:-1], 0)
    if not len(gaps):
        return until
    usual = int(np.sort(gaps)[(len(gaps) - 1) // 2])
    step = float(np.median(np.diff(steps.cpu)[1:] - gaps))
    like = gaps[gaps <= _TIMES.value * max(usual, 1)]
    noise = noise_of(like.astype(np.float64)) if len(like) else 0.0
    far = max(_NOISE.value * noise, _SHARE.share * step, (_TIMES.value - 1) * usual)
    long = gaps - usual > far
    until[1:][long] = anchors.start[1:][long] - usual
    return until


def between_gpu(steps: Periods) -> I64:
    """The same on the GPU: until when it did what was launched between, or had nothing to do because of it."""
    until, begin = between_host(steps), steps.gpu[:-1]
    some = until > steps.cpu[:-1]
    moved = begin.copy()
    done = np.maximum(steps.gpu_done(until[some]), until[some])
    moved[some] = np.clip(done, begin[some], steps.gpu[1:][some])
    return moved


PARTS = ("compute", "comm_exposed", "copy_exposed", "idle")
_BEGUN = Threshold(
    1.0,
    "% of the time of kernels",
    "without steps, start-up is over when so much has run: single kernels initialize weights before",
    ("tests/derive/run/test_simulated_runs.py",),
)


@dataclass(frozen=True)
class RankRun:
    """One rank's capture. Steps have one edge more than there are steps; `until` is where what lies between ends."""

    data: RankData
    begin: int
    end: int
    label: list[str]
    edges: I64
    until: I64
    samples: Samples | None
    on_gpu: bool
    #: what lies between steps, and start-up, on the host
    between_on_host: Spans
    startup_on_host: Spans

    @property
    def startup(self) -> Spans:
        return Spans.of(self.begin, self._first)

    @property
    def after(self) -> Spans:
        """After the last step; in a capture without steps, after start-up."""
        last = int(self.edges[-1]) if len(self.edges) else self._first
        return Spans.of(last, self.end)

    @property
    def between(self) -> Spans:
        return union(self.edges[:-1], self.until) if len(self.edges) else Spans.empty()

    @property
    def between_ns(self) -> I64:
        """By step: what lies between it and the one before."""
        return self.until - self.edges[:-1]

    @property
    def step_ns(self) -> I64:
        """By step: its period without what lies between."""
        return self.edges[1:] - self.until

    @property
    def _first(self) -> int:
        return int(self.edges[0]) if len(self.edges) else startup_end(self.data, self.begin, self.end)

    def parts(self, start: I64, end: I64) -> dict[str, I64 | None]:
        """What each stretch of GPU time consists of; None where nothing of the GPU was recorded."""
        if not self.data.profile.has("ops"):
            return dict.fromkeys(PARTS)
        whole = self.data.once(_partition, self.begin, self.end)
        return {name: covered(start, end, getattr(whole, name)) for name in PARTS}


def rank_run(data: RankData) -> RankRun | None:
    """The rank's account; None where nothing was recorded of it."""
    return data.once(_rank_run)


def _partition(data: RankData, begin: int, end: int) -> Partition:
    return partition(data, begin, end)


def _rank_run(data: RankData) -> RankRun | None:
    lo, hi = data.host_span()
    on_gpu = len(data.start) > 0
    if on_gpu:
        first, last = int(data.start.min()), int(data.end.max())
        lo, hi = first if lo is None else min(lo, first), last if hi is None else max(hi, last)
    if lo is None or hi is None:
        return None
    steps, none = periods(data), np.empty(0, np.int64)
    if steps is None:
        before = Spans.of(lo, startup_end(data, lo, hi))
        return RankRun(data, lo, hi, [], none, none, None, on_gpu, Spans.empty(), before)
    host = between_host(steps)
    edges, until = (steps.gpu, between_gpu(steps)) if on_gpu else (steps.cpu, host)
    on_host = union(steps.cpu[:-1], host), Spans.of(lo, int(steps.cpu[0]))
    edges, until = np.clip(edges, lo, hi), np.clip(until, lo, hi)
    return RankRun(data, lo, hi, steps.anchors.label, edges, until, samples(data), on_gpu, *on_host)


def startup_end(data: RankData, begin: int, end: int) -> int:
    """When start-up is over in a capture without steps: loading and uploading are done, and kernels run.

    A few kernels that fill or cast weights are part of it; without any kernel all of the capture is start-up. Where a
    setup label begins the capture, the program was running already; where neither GPU nor CUDA calls were recorded,
    nothing tells.
    """
    if data.labelled_at() is not None or not (len(data.start) or data.calls.height):
        return begin
    working = union(data.start[data.is_kernel], data.end[data.is_kernel])
    if not len(working):
        return end
    lengths = working.end - working.start
    first = int(np.searchsorted(np.cumsum(lengths), max(1.0, _BEGUN.share * float(lengths.sum()))))
    return int(np.clip(working.start[min(first, len(working) - 1)], begin, end))

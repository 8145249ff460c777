"""What lies between steps: a checkpoint, an evaluation, the end of an epoch (semantics §18).

Ranges of steps leave gaps, in which most loops load the next batch: the usual gap belongs to the step that it comes
before. A gap that is far longer than the usual one holds something else, which is over when the usual gap begins. Where
ranges leave no gaps (torch.profiler's steps, those of `capture run`), nothing is told to lie between: there, a
checkpoint makes a step of another kind.
"""

from __future__ import annotations

import numpy as np

from stepscope.derive.run.clusters import noise_of
from stepscope.derive.windows.periods import Periods
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

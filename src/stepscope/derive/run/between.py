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

#: Beyond the usual gap by so many times the noise, by this share of the usual step, and twice the usual gap at least.
_NOISE, _SHARE, _TIMES = 6.0, 0.2, 2.0


def between_host(steps: Periods) -> I64:
    """By step: until when the host did something between it and the step before; the step's own begin where nothing."""
    anchors, begin = steps.anchors, steps.cpu[:-1]
    until = begin.copy()
    gaps = np.maximum(anchors.start[1:] - np.maximum.accumulate(anchors.end)[:-1], 0)
    if not len(gaps):
        return until
    usual = int(np.sort(gaps)[(len(gaps) - 1) // 2])
    step = float(np.median(np.diff(steps.cpu)[1:] - gaps))
    like = gaps[gaps <= _TIMES * max(usual, 1)]
    far = max(_NOISE * noise_of(like.astype(np.float64)) if len(like) else 0.0, _SHARE * step, (_TIMES - 1) * usual)
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

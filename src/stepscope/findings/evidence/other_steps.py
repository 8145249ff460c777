"""The other steps of the capture: findings are about the median one, and steps may differ from it."""

from __future__ import annotations

import numpy as np

from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.periods import periods
from stepscope.derive.windows.samples import samples
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.intervals import covered
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

STEPS_DIFFER = Threshold(
    25.0,
    "% of the step that is looked at",
    "steps of steady jobs differ by a few per cent; where steps alternate, or some save a checkpoint, by far more",
    ("tests/findings/test_other_steps.py",),
)


def other_steps_notes(case: Case) -> list[Note]:
    """A note where the mean step is another than the one that was looked at, with what all of them have."""
    if case.episodes:  # findings say why steps differ
        return []
    steps = [row for row in case.each_rank(_all_steps).values() if row is not None]
    if not steps:
        return []
    shown, mean = (float(np.mean([row[k] for row in steps])) for k in (0, 1))
    if abs(mean - shown) <= STEPS_DIFFER.share * shown:
        return []
    compute = 100 * sum(row[2] for row in steps) / max(sum(row[3] for row in steps), 1)
    return [noted("steps-of-other-lengths", median=about(shown), mean=about(mean), compute=compute)]


def _all_steps(_: Profile, data: RankData, window: Window) -> tuple[int, float, int, int] | None:
    """The step that is shown, the mean of those that were recorded whole, and how long these compute, of how long."""
    steps, known = (periods(data), samples(data)) if window.kind == "step" else (None, None)
    if steps is None or known is None or known.counted.sum() < 2:
        return None
    start, end = steps.gpu[:-1][known.counted], steps.gpu[1:][known.counted]
    computing = covered(start, end, partition(data, int(steps.gpu[0]), int(steps.gpu[-1])).compute)
    length = int((end - start).sum())
    return window.gpu_ns, length / len(start), int(computing.sum()), length

"""What change a side can tell from noise: what a baseline says when it is saved, and how many steps a limit needs.

A comparison with another side like it (as many samples, as noisy) has an interval of some half width. A change that is
seen nine times in ten is larger than that: the interval must leave out zero although the noise may go against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stepscope.compare.changing import matched, step_change
from stepscope.compare.side import Side
from stepscope.model.threshold import Threshold
from stepscope.model.units import about
from stepscope.statistics.changes import PAIRS
from stepscope.statistics.student import FEWEST, RATE, detectable

FLOOR = Threshold(
    0.5,
    "% of the step",
    "a limit of zero asks whether anything grew at all: noise below this does not make it undecidable",
    ("tests/compare/test_resolution.py",),
)
#: A median of more steps than this is no better: what steps share by then is not their noise.
MOST_STEPS = 200


@dataclass(frozen=True)
class Resolution:
    """Of the step, in percent of it. `half_pct` is the least limit that a gate can decide."""

    step_ns: int
    samples: int
    unit: str
    half_pct: float
    detectable_pct: float

    def statement(self) -> str:
        """The sentence under a saved baseline."""
        coarse = f", and limits below {self.half_pct:.2g} % cannot be decided" if self.half_pct > FLOOR.value else ""
        alone = "" if self.unit == "run" else "; another run may differ by more: save several"
        return (
            f"{self.samples} {self.unit}s of {about(self.step_ns)}: beside as many that are as noisy, a change of "
            f"{_percent(self.detectable_pct)} of the step is seen {round(10 * RATE.share)} times in 10{coarse}{alone}"
        )

    def unseen(self, limit_pct: float) -> str | None:
        """What to say where a change of the limit may go unseen."""
        if not limit_pct or self.detectable_pct <= limit_pct:
            return None
        more = math.ceil(self.samples * (self.detectable_pct / limit_pct) ** 2)
        return f"a change of {limit_pct:g} %, the limit, may go unseen: {more} {self.unit}s per side would show it"


def resolution(side: Side) -> Resolution | None:
    """What comparing it with another like it would tell; None where nothing can be told of its noise."""
    base, new, design = matched(side, side)
    if design is PAIRS:  # the same chunks on both sides: how much they differ between runs, one run does not say
        return None
    step = step_change(base, new, design)
    _, _, low, high = step.judged
    middle = step.judged[0]
    if low is None or high is None or not middle:
        return None
    half = (high - low) / 2
    return Resolution(
        middle, step.base_n, step.unit, 100.0 * half / middle, 100.0 * detectable(half, step.base_n) / middle
    )


def steps_needed(side: Side, limit_pct: float) -> int | None:
    """Steps of a new run by which a change of the limit is seen beside `side`; None where `side` has too few itself.

    The variance of a difference is that of both medians, each falling with the number of its steps.
    """
    longest = max(side.runs, key=lambda run: len(run.labels))
    resolved = resolution(replace(side, runs=[longest]))
    if resolved is None:
        return None
    m = len(longest.labels)
    share = 2.0 * (limit_pct / resolved.detectable_pct) ** 2 if resolved.detectable_pct else math.inf
    if share <= 1.0:
        return None  # even endless steps would not do
    return min(MOST_STEPS, max(FEWEST.count, math.ceil(m / (share - 1.0)))) if math.isfinite(share) else FEWEST.count


def _percent(value: float) -> str:
    """No finer than anybody asks."""
    return f"{max(value, 0.1):.2g} %"

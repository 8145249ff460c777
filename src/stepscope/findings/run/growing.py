"""Work that grows with every step of a program: what the GPU computes, kernel by kernel (semantics §18).

A profiler slows the host, and where that decides the step's length it hides what the GPU computes more. So the trend is
looked for in the compute of the usual steps, too. Where only some kernels grow, and the others do not, it is the
work that grows, and as steps before the capture grew like these, it has grown since the program began.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from stepscope.derive.run.account import RankRun
from stepscope.derive.run.job import Run, run_of
from stepscope.derive.run.kinds import Drift, drift_of
from stepscope.findings.run.inside import inside_step
from stepscope.findings.run.outside import steps_before
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

_GROWN = Threshold(
    5.0,
    "% of the kernel's time in the first step",
    "kernels of one name differ by less from step to step",
    ("tests/findings/test_growing.py",),
)
_SOME = Threshold(
    60.0,
    "% of the step's compute",
    "where more of it grows, kernels are slower or batches larger: that need not have begun with the program",
    ("tests/findings/test_growing.py",),
)


class Growing(NamedTuple):
    """The rank that shows it, how its compute grows, and for how many steps it grew before the first sample."""

    rank: RankRun
    drift: Drift
    before: int


def growing(profile: Profile) -> Growing | None:
    """None where the compute of usual steps does not grow."""
    return profile.once(_growing)


def _growing(profile: Profile) -> Growing | None:
    run = run_of(profile)
    if run.kinds is None:
        return None
    usual = run.kinds.kinds[0].steps
    calm = np.sort(usual[~run.kinds.spike[usual]])
    growing = [(r, drift) for r in run.ranks if (drift := _of_rank(run, r, calm)) is not None and drift.change_ns > 0]
    if not growing:
        return None
    rank, drift = max(growing, key=lambda item: (item[1].change_ns, -item[0].data.rank))
    labels = run.label[int(calm[0])], run.label[int(calm[-1])]
    return Growing(rank, drift, steps_before(profile, run) if _some_grow(rank, *labels) else 0)


def _of_rank(run: Run, rank: RankRun, calm: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Drift | None:
    compute = rank.parts(rank.until, rank.edges[1:])["compute"]
    place = {text: k for k, text in enumerate(rank.label)}
    rows = [row for row in calm.tolist() if run.label[row] in place]
    if compute is None or not rows:
        return None
    values = compute[[place[run.label[row]] for row in rows]].astype(np.float64)
    return drift_of(run.number[rows], values, float(np.median(run.lengths[rows])))


def _some_grow(rank: RankRun, first: str, last: str) -> bool:
    """Whether some kernels take longer in the last step than in the first, or are more, and the rest are as before."""
    before, after = (inside_step(rank, rank.label.index(text)).kernels for text in (first, last))
    both = before.join(after, on="name", how="full", suffix="_last", coalesce=True).fill_null(0)
    grown = both.filter(pl.col("ns_last") > (1 + _GROWN.share) * pl.col("ns"))
    return float(grown["ns"].sum()) <= _SOME.share * float(both["ns"].sum())

"""How wide intervals must be: from pairs, for every finding, into src/stepscope/findings/calibration.toml.

The truth is the promise times a factor; its logarithm has a spread of each finding's own. That is estimated from the
jobs there are, and drawn towards the spread of all findings, which counts as one job more: a finding with few jobs gets
a wide interval. Simulated jobs together count as one real one: they know nothing of profilers and shared machines.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from promises.pair import MATERIAL, Pair

FILE = Path(__file__).parents[2] / "src" / "stepscope" / "findings" / "calibration.toml"
#: Share of truths that an interval is to hold.
COVERS = 0.90
#: As how many jobs the spread of all findings counts, and as how many all simulated jobs of a finding do.
PRIOR_JOBS, SIMULATED_JOBS = 1.0, 1.0
#: Findings whose detectors state an interval of their own.
BOUNDED = frozenset({"no-tensor-cores"})
#: One promise that was kept by none of it does not make all others worthless.
_MOST = math.log(3)


@dataclass(frozen=True)
class Width:
    """The truth lies between the promise divided and multiplied by `factor`."""

    factor: float
    real: int
    simulated: int


def squares(pairs: Iterable[Pair], ident: str | None) -> dict[str, float]:
    """By job: mean square of the logarithm of truth ÷ promise, where something was promised."""
    by_job: dict[str, list[float]] = {}
    for p in pairs:
        said = p.promise
        if said is None or ident not in (None, said.id) or said.ns < MATERIAL * p.step_ns or said.low_ns == 0:
            continue  # an upper bound promises no more than that
        error = math.log(max(p.truth_ns, 1.0) / said.ns)
        by_job.setdefault(p.job + p.fault, []).append(min(abs(error), _MOST) ** 2)
    return {job: float(np.mean(each)) for job, each in by_job.items()}


def widths(real: list[Pair], made: list[Pair], without: str | None = None) -> dict[str, Width]:
    """By finding, and for all others under "default"; `without` leaves a job out, to test what the rest say of it."""
    real = [p for p in real if p.job != without]
    every = list(squares(real, None).values())
    usual = float(np.mean(every)) if every else _MOST**2
    found = {"default": Width(_factor(usual, PRIOR_JOBS), 0, 0)}
    for ident in sorted({s.id for p in (*real, *made) if (s := p.promise) is not None}):
        mine, drawn = list(squares(real, ident).values()), list(squares(made, ident).values())
        weight = SIMULATED_JOBS if drawn else 0.0
        jobs = PRIOR_JOBS + len(mine) + weight
        spread = (PRIOR_JOBS * usual + sum(mine) + weight * (float(np.mean(drawn)) if drawn else 0.0)) / jobs
        found[ident] = Width(_factor(spread, jobs), len(mine), len(drawn))
    return found


def _factor(spread: float, jobs: float) -> float:
    return math.exp(min(math.sqrt(spread) * _student(jobs), _MOST))


@cache
def _student(freedom: float) -> float:
    """The two-sided quantile of Student's distribution."""
    x = np.linspace(0, 60, 600_001)
    density = (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    share = np.cumsum(density) / density.sum()
    return float(x[np.searchsorted(share, COVERS)])


def held(real: list[Pair], made: list[Pair]) -> dict[int, bool]:
    """By index of a pair with a promise: whether the intervals that all other jobs give hold its truth."""
    found = {}
    for i, p in enumerate(real):
        if (said := p.promise) is None or not p.material:
            continue
        table = widths(real, made, without=p.job)
        factor = table.get(said.id, table["default"]).factor
        if said.low_ns is not None and said.high_ns is not None and (said.low_ns == 0 or said.id in BOUNDED):
            found[i] = said.low_ns <= p.truth_ns <= said.high_ns
        else:
            found[i] = said.ns / factor <= p.truth_ns <= said.ns * factor
    return found


def known() -> dict[str, Width]:
    """What the file says today."""
    return {ident: Width(**row) for ident, row in tomllib.loads(FILE.read_text("utf-8")).items()}


def text(table: dict[str, Width]) -> str:
    lines = [
        "# How far from a promise the truth lies in nine of ten cases: from it divided by `factor` to it times that.",
        "# Written by `make promises ARGS=full`, from `real` and `simulated` jobs with the fault that a finding names.",
        "# `default` is for findings without any.",
    ]
    for ident, w in sorted(table.items()):
        lines += ["", f"[{ident}]", f"factor = {w.factor:.3f}", f"real = {w.real}", f"simulated = {w.simulated}"]
    return "\n".join(lines) + "\n"

"""The pipeline's bubble on each rank, beside the ideal of its schedule (semantics §7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.simulate.job.model import STAGES, layer_parts
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.truth.facts import COMM, COMPUTE, Facts, counts, edges_of
from stepscope.simulate.truth.windows import Span


def bubble_row(f: Facts, step: Span) -> dict[str, Any]:
    """Time of the step with neither compute nor communication other than the pipeline's."""
    lo, hi = step.start, step.end
    pipeline = (f.range >= 0) & f.in_pipeline[f.range]
    busy = (f.role == COMPUTE) | ((f.role == COMM) & ~pipeline)
    start, end = np.clip(f.start[busy], lo, hi), np.clip(f.end[busy], lo, hi)
    edges = edges_of(start, end, [lo, hi])
    free = int(np.diff(edges)[counts(start, end, edges) == 0].sum())
    return {
        **f.who,
        "step_ns": hi - lo,
        "bubble_ns": free,
        "bubble_pct": 100.0 * free / (hi - lo),
        "ideal_pct": 100.0 * ideal(f.job.scenario),
    }


def ideal(s: Scenario) -> float:
    """Share of the step that the schedule itself leaves idle, with the model's nominal stage times."""
    p, m = s.pp, s.micro_batches
    if s.schedule == "1f1b":
        return (p - 1) / (m + p - 1)
    if s.schedule == "interleaved":
        return (p - 1) / (s.vpp * m + p - 1)
    parts = {way: _time(way, layer_parts(s)) for way in "fbw"}
    f, b, w = parts["f"], parts["b"], parts["w"]
    if s.schedule == "zero-bubble":
        bubble, work = (p - 1) * (f + b - w), m * (f + b + w)
    else:  # DualPipeV, whose b is the whole backward pass
        bubble, work = (p - 1) * (f + 2 * (b + w) - 3 * w), 2 * m * (f + b + w)
    return bubble / (work + bubble)


def _time(way: str, parts: tuple[str, ...]) -> float:
    """Nominal time of a layer's forward, backward or weight-gradient kernels."""
    wanted = [(part, way) for part in parts]
    return sum(us for name, k in STAGES.items() if name.partition("_")[::2] in wanted for _, us in k)

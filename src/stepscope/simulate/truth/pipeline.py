"""The pipeline's bubble on each rank, beside the ideal of its schedule (semantics §7).

Of two stages (semantics §8) every item: both stages, the period, and what of them ran side by side.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from stepscope.simulate.job.model import STAGES, layer_parts
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.truth.facts import COMM, COMPUTE, Facts, Row, Rows, counts, edges_of
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


_PART = re.compile(r"^pp:(stage0:A|stage0:C|stage1:B|emit)\w* k=(\d+)")
#: Busy time, begin and end of a part of an item.
_Part = tuple[int, int, int]


def item_rows(job: Job) -> Rows:
    """In order of items, of the first rank of each stage: whose clock counts."""
    second = next(r.rank for r in job.mesh.ranks if r.coords["pp"][0] == 1)
    parts = _parts(Facts(job, 0)) | _parts(Facts(job, second))
    rows: Rows = []
    for k in range(job.scenario.steps * job.scenario.micro_batches):
        encode, decode, layers = (parts[part, k] for part in ("stage0:A", "stage0:C", "stage1:B"))
        stage0, stage1 = encode[0] + decode[0], layers[0]
        row: Row = {"k": k, "period_ns": None, "stage0_ns": stage0, "stage1_ns": stage1}
        row |= {"hidden_ns": None, "overlap_score": None, "decode_ns": decode[0], "mesh_idle_ns": None}
        if k:
            period = parts["emit", k][2] - parts["emit", k - 1][2]
            hidden = max(0, stage0 + stage1 - period)
            row |= {"period_ns": period, "hidden_ns": hidden, "overlap_score": hidden / min(stage0, stage1)}
            row["mesh_idle_ns"] = max(0, layers[1] - parts["stage1:B", k - 1][2])
        rows.append(row)
    return rows


def _parts(f: Facts) -> dict[tuple[str, int], _Part]:
    """By part and item; of what launches nothing, the range itself."""
    parts: dict[tuple[str, int], _Part] = {}
    for row in f.own.tolist():
        if (match := _PART.match(f.text(row) or "")) is None:
            continue
        key = match[1], int(match[2])
        lo, hi = int(f.range_start[row]), int(f.range_end[row])
        launched = (f.launched >= lo) & (f.launched < hi)
        if not launched.any():
            parts[key] = hi - lo, lo, hi
            continue
        start, end = f.start[launched], f.end[launched]
        parts[key] = _union(start.tolist(), end.tolist()), int(start.min()), int(end.max())
    return parts


def _union(starts: list[int], ends: list[int]) -> int:
    total, reached = 0, -1
    for start, end in sorted(zip(starts, ends, strict=True)):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total

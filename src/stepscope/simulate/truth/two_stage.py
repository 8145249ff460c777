"""Every item of a two-stage pipeline (semantics §8): both stages, the period, and what of them ran side by side."""

from __future__ import annotations

import re
from typing import Any

from stepscope.simulate.programs.execute import Job
from stepscope.simulate.truth.facts import Facts

_PART = re.compile(r"^pp:(stage0:A|stage0:C|stage1:B|emit)\w* k=(\d+)")
#: Busy time, begin and end of a part of an item.
_Part = tuple[int, int, int]


def item_rows(job: Job) -> list[dict[str, Any]]:
    """In order of items, of the first rank of each stage: whose clock counts."""
    second = next(r.rank for r in job.mesh.ranks if r.coords["pp"][0] == 1)
    parts = _parts(Facts(job, 0)) | _parts(Facts(job, second))
    rows: list[dict[str, Any]] = []
    for k in range(job.scenario.steps * job.scenario.micro_batches):
        encode, decode, layers = (parts[part, k] for part in ("stage0:A", "stage0:C", "stage1:B"))
        stage0, stage1 = encode[0] + decode[0], layers[0]
        row: dict[str, Any] = {"k": k, "period_ns": None, "stage0_ns": stage0, "stage1_ns": stage1}
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

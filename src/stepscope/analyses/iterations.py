"""How steady is the pace: every step's time on host and GPU, its percentiles, and the outliers.

One slow step is a different bug from a slow run: a garbage collection, a recompile or a checkpoint shows as an
outlier, a slow loop as a high median. An outlier lies beyond Tukey's outer fences (three interquartile ranges) of its
rank's steps. A step lasts from the end of the one before it to its own end, so that a stall between two steps is in the
second. Where the capture holds one step of a pipeline, its chunks are shown instead. Steps that were not recorded
whole (the first: nothing before it was) are shown, and count in no percentile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, TypedDict

import numpy as np

from stepscope.derive.rank.data import ranks_of
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.samples import Samples, notes_on_left_out, samples
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.unmarked import why_unmarked
from stepscope.derive.windows.window import WHOLE
from stepscope.errors import BadInput, CannotAnswer
from stepscope.intervals.arrays import I64, Mask
from stepscope.model.option import Effect
from stepscope.model.profile import Profile
from stepscope.model.result import Result, rows
from stepscope.model.threshold import Threshold


class Row(TypedDict):
    rank: Annotated[int, "rank of the process"]
    pid: Annotated[int | None, "process id on its host"]
    anchor: Annotated[str, "text of the anchor with its numbers folded"]
    index: Annotated[int, "which instance, by start"]
    label: Annotated[str, "its text"]
    cpu_ns: Annotated[int, "length on the host"]
    gpu_ns: Annotated[int | None, "length on the GPU; null where nothing was launched in it"]
    outlier: Annotated[
        bool, "beyond the outer fences of its rank's steps, on the GPU (on the host without GPU work) or by period"
    ]
    period_ns: Annotated[
        int | None, "of steps the same; of others, from its start on the GPU to the next one's, null for the last"
    ]
    cut: Annotated[
        str | None, "begin: nothing before it was recorded; end: its end was not; empty: no GPU work; null: it is whole"
    ]


_FEWEST = Threshold(
    4,
    "steps",
    "quartiles of fewer steps say nothing",
    ("tests/analyses/test_all_steps.py",),
)


def iterations(
    profile: Profile,
    window: WindowSpec,
    *,
    plot: Annotated[bool, "draw the pace in the terminal (table format only)", Effect.DRAWS] = False,
) -> Result:
    if window.start is not None:
        raise BadInput("iterations covers all steps: --start and --end do not apply", "give --anchor REGEX instead")
    chosen = windows(profile, replace(window, index="all"), "pace")
    if all(w.label == WHOLE for w in chosen.spans):
        raise CannotAnswer(
            f"no step or chunk range recurs in this profile{why_unmarked(ranks_of(profile))}",
            "annotate steps (`step 12`), let torch.profiler mark them (prof.step()), or give --anchor REGEX",
        )
    table: list[Row] = []
    summary: list[dict[str, int | None]] = []
    stepped: list[Samples] = []
    for data in ranks_of(profile):
        spans = [w for w in chosen.of(data.rank) if w.cpu_start_ns is not None and w.cpu_end_ns is not None]
        cpu = np.array([(w.cpu_end_ns or 0) - (w.cpu_start_ns or 0) for w in spans], np.int64)
        gpu = [None if w.gpu_start_ns is None else w.gpu_ns for w in spans]
        starts = [w.gpu_start_ns for w in spans]
        following = zip(starts, [*starts[1:], None], strict=False)
        # Ranges within each other may begin in another order on the GPU than on the host: that is not a pace.
        period = [None if a is None or b is None or b < a else b - a for a, b in following]
        if all(w.kind == "step" for w in spans):  # a step is its period, the last one too
            period = gpu
        sampled = samples(data) if spans and all(w.kind == "step" for w in spans) else None
        counted = np.ones(len(spans), dtype=bool) if sampled is None else sampled.counted[[w.index for w in spans]]
        paced = counted & np.array([p is not None for p in period], dtype=bool)
        flags = np.zeros(len(spans), dtype=bool)
        on_gpu = all(g is not None for g, c in zip(gpu, counted.tolist(), strict=True) if c)
        flags[counted] = _outliers(_known(gpu, counted) if on_gpu else cpu[counted])
        flags[paced] |= _outliers(_known(period, paced))
        cut = [None] * len(spans) if sampled is None else [sampled.cut[w.index] for w in spans]
        stepped += [] if sampled is None else [sampled]
        for i, w in enumerate(spans):
            table.append(
                {
                    "rank": w.rank,
                    "pid": w.pid,
                    "anchor": _fold(w.label),
                    "index": w.index,
                    "label": w.label,
                    "cpu_ns": int(cpu[i]),
                    "gpu_ns": gpu[i],
                    "outlier": bool(flags[i]),
                    "period_ns": period[i],
                    "cut": cut[i],
                }
            )
        busy = _known(gpu, counted & np.array([g is not None for g in gpu], dtype=bool))
        figures = {"cpu": cpu[counted], "gpu": busy, "period": _known(period, paced)}
        pace = {k: v for what, times in figures.items() for k, v in _percentiles(what, times).items()}
        spread = {k: v for what, times in figures.items() for k, v in _deviation(what, times).items()}
        summary.append({"rank": data.rank, "n": len(spans), **pace, **spread, "left_out": int((~counted).sum())})
    summed = {"pace": summary, "plot": plot}
    notes = [*chosen.notes, *notes_on_left_out(stepped)]
    return Result(rows(Row, table), chosen.rows(), summed, notes, ranked_by="gpu_ns")


def _known(times: Sequence[int | None], wanted: Mask) -> I64:
    """Times of the instances that are wanted; all of these are known."""
    return np.array([t for t, w in zip(times, wanted.tolist(), strict=True) if w], np.int64)


def _fold(label: str) -> str:
    return re.sub(r"#?\d+", "#", label)


def _outliers(times: I64) -> Mask:
    if len(times) < _FEWEST.value:
        return np.zeros(len(times), dtype=bool)
    low, high = np.percentile(times, [25, 75])
    fence = 3 * (high - low)
    beyond: Mask = (times < low - fence) | (times > high + fence)
    return beyond


def _percentiles(what: str, times: I64) -> dict[str, int | None]:
    marks = (50, 90, 99)
    if len(times) == 0:
        return {f"{what}_p{m}_ns": None for m in marks}
    return {f"{what}_p{m}_ns": round(float(v)) for m, v in zip(marks, np.percentile(times, marks), strict=True)}


def _deviation(what: str, times: I64) -> dict[str, int | None]:
    """The standard deviation; of one instance, none."""
    return {f"{what}_std_ns": round(float(times.std(ddof=1))) if len(times) > 1 else None}

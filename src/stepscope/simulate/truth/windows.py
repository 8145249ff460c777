"""The step and the chunk of each rank (semantics §4), and the pace of what recurs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Facts, Row, Rows

WHOLE = "(whole capture)"
_CHUNK = re.compile("forward chunk .* backward chunk")
_FIRST_PASS = re.compile(r"^forward chunk 0 \(phase0\)")
_STEP = re.compile(r"step \d+")
_NUMBER = re.compile(r"#?\d+")
_FEWEST = 4  # steps, for quartiles to mean something


@dataclass
class Span:
    """One instance of the anchor: its place on the host, the ops launched there, and where these ran."""

    label: str
    index: int
    count: int
    lo: int
    hi: int
    ops: I64
    start: int
    end: int


def chunk(f: Facts, step: int) -> Span:
    """The window of `window`, `streams`, `overlap` and `exposed`: the median chunk of a job that has chunks."""
    rows = _named(f, _CHUNK)
    if not rows:
        return steps(f)[step]
    row = rows[len(rows) // 2]
    lo, hi = int(f.range_start[row]), int(f.range_end[row])
    ops = np.flatnonzero((f.launched >= lo) & (f.launched < hi))
    text = f.text(row) or ""
    return Span(text, len(rows) // 2, len(rows), lo, hi, ops, int(f.start[ops].min()), int(f.end[ops].max()))


def steps(f: Facts) -> list[Span]:
    """Every step of the rank; the capture, from its first label on, where the trainer marks only chunks."""
    if not _named(f, _STEP):
        ranges, calls = (f.range_start, f.range_end), (f.call_start, f.call_end)
        lo = min(int(x.min()) for x, _ in (ranges, calls))
        hi = max(int(x.max()) for _, x in (ranges, calls))
        return [Span(WHOLE, 0, 1, lo, hi, np.arange(len(f.start)), int(f.range_start.min()), int(f.end.max()))]
    return _periods(f)


def _periods(f: Facts) -> list[Span]:
    """What recurs: from the end of the one before it to its own, on the host and on the GPU."""
    texts, edges = _edges(f)
    before = f.launched < edges[0]
    start = max(edges[0], int(f.end[before].max())) if before.any() else edges[0]
    spans = []
    for k, text in enumerate(texts):
        lo, hi = edges[k], edges[k + 1]
        ops = np.flatnonzero((f.launched >= lo) & (f.launched < hi))
        end = max(start, int(f.end[ops].max()))
        spans.append(Span(text, k, len(texts), lo, hi, ops, start, end))
        start = end
    return spans


def _edges(f: Facts) -> tuple[list[str], list[int]]:
    """Labels of the rank's steps, and where on the host each begins and the last ends.

    A step of a job that marks only chunks begins with its first forward pass, and the last ends with the capture.
    """
    if rows := _named(f, _STEP):
        return [f.text(row) or "" for row in rows], [int(f.range_start[rows[0]]), *f.range_end[rows].tolist()]
    first = f.range_start[_named(f, _FIRST_PASS)].tolist()
    end = int(max(f.range_end.max(), f.call_end.max()))
    return [f"from forward chunk 0 #{k}" for k in range(len(first))], [*first, end]


def median_step(spans: list[list[Span]]) -> int:
    """The step of all ranks, over all of them: the one of median length; of several, the earliest.

    Nothing came before the first step, so that it is not a sample: where it is the median, a later step of the nearest
    length is. Of two steps, one alone would be left, of which nothing says whether it is usual: there it counts.
    """
    lengths = [sum(of_rank[k].end - of_rank[k].start for of_rank in spans) for k in range(len(spans[0]))]
    median = sorted(lengths)[len(lengths) // 2]
    samples = range(1, len(lengths)) if len(lengths) > 2 else range(len(lengths))
    return min(samples, key=lambda k: abs(lengths[k] - median))


def _named(f: Facts, text: re.Pattern[str]) -> list[int]:
    names = [n for n in np.unique(f.range_name[f.own]).tolist() if text.search(f.names[n])]
    rows: list[int] = f.own[np.isin(f.range_name[f.own], names)].tolist()
    return rows


def window_row(f: Facts, s: Span) -> Row:
    """Row of `window`."""
    return {
        **f.who,
        "label": s.label,
        "index": s.index,
        "count": s.count,
        "cpu_start_ns": s.lo,
        "cpu_end_ns": s.hi,
        "gpu_start_ns": s.start,
        "gpu_end_ns": s.end,
        "ops": len(s.ops),
    }


def iteration_rows(f: Facts) -> Rows:
    """Rows of `iterations`: every step; of a capture of one, its chunks where it has any."""
    chunks = _named(f, _CHUNK)
    if f.job.scenario.steps > 1 or not chunks:
        spans = _periods(f)
        gpu = np.array([s.end - s.start for s in spans], np.int64)
        periods: list[int | None] = gpu.tolist()
    else:
        spans = []
        for k, row in enumerate(chunks):
            lo, hi = int(f.range_start[row]), int(f.range_end[row])
            ops = np.flatnonzero((f.launched >= lo) & (f.launched < hi))
            text = f.text(row) or ""
            spans.append(Span(text, k, len(chunks), lo, hi, ops, int(f.start[ops].min()), int(f.end[ops].max())))
        gpu = np.array([s.end - s.start for s in spans], np.int64)
        periods = [b.start - a.start for a, b in pairwise(spans)] + [None]
    paced = np.array([p for p in periods if p is not None], np.int64)
    outlier = _beyond(gpu)
    outlier[: len(paced)] |= _beyond(paced)
    return [
        {
            **f.who,
            "anchor": _NUMBER.sub("#", s.label),
            "index": i,
            "label": s.label,
            "cpu_ns": s.hi - s.lo,
            "gpu_ns": s.end - s.start,
            "outlier": bool(outlier[i]),
            "period_ns": periods[i],
        }
        for i, s in enumerate(spans)
    ]


def _beyond(ns: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Beyond Tukey's outer fences."""
    low, high = np.percentile(ns, [25, 75]) if len(ns) >= _FEWEST else (-np.inf, np.inf)
    fence = 3 * (high - low)
    beyond: np.ndarray[tuple[int], np.dtype[np.bool_]] = (ns < low - fence) | (ns > high + fence)
    return beyond

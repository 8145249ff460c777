"""The window of each rank (semantics §4), and the pace of its anchor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Facts

WHOLE = "(whole capture)"
_CHUNK = re.compile("forward chunk .* backward chunk")
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


def span(f: Facts) -> Span:
    """The default window: the median instance."""
    every = instances(f)
    if not every:
        ranges, calls = (f.range_start, f.range_end), (f.call_start, f.call_end)
        lo = min(int(x.min()) for x, _ in (ranges, calls))
        hi = max(int(x.max()) for _, x in (ranges, calls))
        ops = np.arange(len(f.start))
        return Span(WHOLE, 0, 1, lo, hi, ops, int(f.start.min()), int(f.end.max()))
    return _span(f, every, len(every) // 2)


def _span(f: Facts, every: list[int], index: int) -> Span:
    row = every[index]
    lo, hi = int(f.range_start[row]), int(f.range_end[row])
    ops = np.flatnonzero((f.launched >= lo) & (f.launched < hi))
    text = f.text(row) or ""
    return Span(text, index, len(every), lo, hi, ops, int(f.start[ops].min()), int(f.end[ops].max()))


def instances(f: Facts) -> list[int]:
    """Ranges that are the default anchor, by start: the overlapped chunks of a job that has any, else its steps."""
    return _named(f, _CHUNK) or _named(f, _STEP)


def _named(f: Facts, text: re.Pattern[str]) -> list[int]:
    names = [n for n in np.unique(f.range_name[f.own]).tolist() if text.search(f.names[n])]
    rows: list[int] = f.own[np.isin(f.range_name[f.own], names)].tolist()
    return rows


def window_row(f: Facts, s: Span) -> dict[str, Any]:
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


def _paced(f: Facts) -> tuple[list[str], I64, I64]:
    """What recurs, and where on the host: steps, or the chunks of a job of one step.

    A step of a job that marks only chunks begins with its first overlapped chunk.
    """
    chunks, steps = _named(f, _CHUNK), f.job.scenario.steps
    rows = chunks or _named(f, _STEP)
    texts = [f.text(row) or "" for row in rows]
    lo, hi = f.range_start[rows], f.range_end[rows]
    if not chunks or steps == 1:
        return texts, lo, hi
    first = lo[:: len(rows) // steps]
    return [f"{texts[0]} #{k}" for k in range(steps)], first, np.append(first[1:], hi.max())


def iteration_rows(f: Facts) -> list[dict[str, Any]]:
    """Rows of `iterations`: every instance of what recurs."""
    texts, lo, hi = _paced(f)
    if not texts:
        return []
    # Instances of an anchor do not overlap, so each op belongs to the last one that began before its launch.
    owner = np.searchsorted(lo, f.launched, side="right") - 1
    inside = (owner >= 0) & (f.launched < hi[np.maximum(owner, 0)])
    first = np.full(len(texts), np.iinfo(np.int64).max)
    last = np.full(len(texts), -1)
    np.minimum.at(first, owner[inside], f.start[inside])
    np.maximum.at(last, owner[inside], f.end[inside])
    gpu = last - first
    outlier = _beyond(gpu) | np.append(_beyond(np.diff(first)), False)
    rows = []
    for i, text in enumerate(texts):
        rows.append(
            {
                **f.who,
                "anchor": _NUMBER.sub("#", text),
                "index": i,
                "label": text,
                "cpu_ns": int(hi[i] - lo[i]),
                "gpu_ns": int(gpu[i]),
                "outlier": bool(outlier[i]),
                "period_ns": int(first[i + 1] - first[i]) if i + 1 < len(texts) else None,
            }
        )
    return rows


def _beyond(ns: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Beyond Tukey's outer fences."""
    low, high = np.percentile(ns, [25, 75]) if len(ns) >= _FEWEST else (-np.inf, np.inf)
    fence = 3 * (high - low)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (ns < low - fence) | (ns > high + fence)
    return found

"""The window of each rank (semantics §4), and the pace of its anchor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from stepscope.simulate.trace.trace import I64
from stepscope.simulate.truth.facts import Facts

WHOLE = "(whole capture)"
_CHUNK = re.compile("forward chunk .* backward chunk")
_NUMBER = re.compile(r"\d+")
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
    """Ranges that are the default anchor, by start."""
    names = {n: f.names[n] for n in np.unique(f.range_name[f.own]).tolist()}
    chunks = [n for n, text in names.items() if _CHUNK.search(text)]
    if chunks:
        rows: list[int] = f.own[np.isin(f.range_name[f.own], chunks)].tolist()
        return rows
    return _numbered(f, names)


def _numbered(f: Facts, names: dict[int, str]) -> list[int]:
    """The shallowest family of ranges with a running number; of several, the one with most host time."""
    families: dict[str, list[int]] = {}
    for n, text in names.items():
        if _NUMBER.search(text):
            families.setdefault(_NUMBER.sub("#", text), []).append(n)
    found = []
    for family, members in families.items():
        rows = f.own[np.isin(f.range_name[f.own], members)]
        numbers = [int(_NUMBER.findall(names[n])[-1]) for n in f.range_name[rows].tolist()]
        if len(rows) > 1 and all(a < b for a, b in pairwise(numbers)):
            time = int((f.range_end[rows] - f.range_start[rows]).sum())
            found.append((_depth(f, int(rows[0])), -time, family, rows.tolist()))
    return min(found)[3] if found else []


def _depth(f: Facts, row: int) -> int:
    depth = 0
    while (row := int(f.range_parent[row])) >= 0:
        depth += 1
    return depth


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


def iteration_rows(f: Facts) -> list[dict[str, Any]]:
    """Rows of `iterations`: every instance of the anchor."""
    every = instances(f)
    if not every:
        return []
    lo, hi = f.range_start[every], f.range_end[every]
    # Instances of an anchor do not overlap, so each op belongs to the last one that began before its launch.
    owner = np.searchsorted(lo, f.launched, side="right") - 1
    inside = (owner >= 0) & (f.launched < hi[np.maximum(owner, 0)])
    first = np.full(len(every), np.iinfo(np.int64).max)
    last = np.full(len(every), -1)
    np.minimum.at(first, owner[inside], f.start[inside])
    np.maximum.at(last, owner[inside], f.end[inside])
    gpu = last - first
    outlier = _beyond(gpu) | np.append(_beyond(np.diff(first)), False)
    rows = []
    for i, row in enumerate(every):
        text = f.text(row) or ""
        rows.append(
            {
                **f.who,
                "anchor": _NUMBER.sub("#", text),
                "index": i,
                "label": text,
                "cpu_ns": int(hi[i] - lo[i]),
                "gpu_ns": int(gpu[i]),
                "outlier": bool(outlier[i]),
                "period_ns": int(first[i + 1] - first[i]) if i + 1 < len(every) else None,
            }
        )
    return rows


def _beyond(ns: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Beyond Tukey's outer fences."""
    low, high = np.percentile(ns, [25, 75]) if len(ns) >= _FEWEST else (-np.inf, np.inf)
    fence = 3 * (high - low)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (ns < low - fence) | (ns > high + fence)
    return found

"""Sampled values as rows of the timeline: GPU metrics, power, and what the allocator holds.

A sample holds until the next one. Where a view has more samples than pixels, each bucket has the least and the largest
of its own, so that no peak is lost. The page gets them as parts of the row's largest value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.derive.kernel.sampled import ACTIVITY, CLOCK, in_megahertz
from stepscope.intervals.arrays import F64, I64, Mask
from stepscope.timeline.kinds import FULL
from stepscope.timeline.messages import Group
from stepscope.timeline.track import Marks

#: What torch's allocator holds has no unit in its name.
_IN_BYTES = ("memory allocated", "memory reserved")
#: nsys ends the name of a metric with its unit: `SMs Active [Throughput %]`, `GPC Clock Frequency [MHz]`.
_NAMED_UNIT = re.compile(r"(?<!\s)\s*\[(?:Throughput )?((?!Avg)[^\[\]]+)\]")


@dataclass(frozen=True)
class CounterTrack:
    """Samples of one metric on one device, by time."""

    rank: int
    level: int
    label: str
    #: `bytes`, `%`, `MHz` …; "" where nothing says it
    unit: str
    start: I64
    value: F64
    kind: int
    group: Group = "counters"

    @property
    def most(self) -> float:
        return max(float(self.value.max()), 1e-9) if len(self.value) else 1.0

    def view(self, lo: int, hi: int, pixels: int, matches: Mask | None = None, *, overview: bool = False) -> Marks:
        """Samples of [lo, hi): `n` is the largest value of a mark, `row` the least, as parts of `most`."""
        first = max(int(np.searchsorted(self.start, lo, side="right")) - 1, 0)
        last = int(np.searchsorted(self.start, hi))
        start, value = self.start[first:last], self.value[first:last]
        at = np.arange(len(start))
        if len(start) > pixels:
            bucket = (start - lo) * pixels // max(hi - lo, 1)
            at = np.flatnonzero(np.r_[True, bucket[1:] != bucket[:-1]])
        high = np.maximum.reduceat(value, at) if len(at) else value
        low = np.minimum.reduceat(value, at) if len(at) else value
        begin = start[at]
        end = np.r_[begin[1:], self.start[last : last + 1] if last < len(self.start) else begin[-1:] + 1]
        none = np.zeros(len(at), np.int64)
        small = none.astype(np.uint8)
        kind = np.full(len(at), self.kind, np.uint8)
        return Marks(begin, end[: len(at)], kind, none, self._part(high), small, self._part(low), small)

    def _part(self, value: F64) -> I64:
        parts: I64 = np.rint(np.clip(value / self.most, 0, 1) * FULL).astype(np.int64)
        return parts


#: A metric of a rank: its name and unit, own times and values.
Samples = tuple[str, str, I64, F64]


def samples(frame: pl.DataFrame) -> Iterator[Samples]:
    """Every counter of one rank, of its `counter`, `device`, `start_ns` and `value`."""
    several = frame["device"].n_unique() > 1
    for (device, name), rows in frame.with_columns(in_megahertz()).group_by("device", "counter", maintain_order=True):
        plain, unit = unit_of(str(name))
        label = f"{plain} (device {device})" if several and device is not None else plain
        yield label, unit, rows["start_ns"].to_numpy(), rows["value"].to_numpy()


def chosen(frame: pl.DataFrame) -> pl.DataFrame:
    """Of what was sampled, what a report shows: how busy the GPU was, what its memory did, its clock."""
    names = frame["counter"].unique(maintain_order=True)
    shown = (names.filter(names.str.contains(pattern)).to_list()[:1] for pattern in (*ACTIVITY.values(), CLOCK))
    order = {name: k for k, (name,) in enumerate(filter(None, shown))}
    if not order:  # what was sampled is something else, such as memory
        return frame.clear()
    kept = frame.filter(pl.col("counter").is_in(list(order)))
    number = pl.col("counter").replace_strict(order, return_dtype=pl.Int64)
    return kept.sort(number, "start_ns", maintain_order=True)


def unit_of(name: str) -> tuple[str, str]:
    """What a metric is called, and its unit."""
    if name.endswith(_IN_BYTES):
        return name, "bytes"
    named = _NAMED_UNIT.search(name)
    return (_NAMED_UNIT.sub("", name, count=1), named[1]) if named else (name, "")

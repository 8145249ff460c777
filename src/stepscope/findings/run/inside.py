"""What one stretch of a rank holds: time by part, ranges, copies to the host, kernels by name.

A long step is told from a usual one by what differs between two of these.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.host.idle_causes import ALLOC, call_causes
from stepscope.derive.rank.data import COMPUTE, COPY, RankData
from stepscope.derive.run.account import RankRun
from stepscope.derive.run.contents import contents
from stepscope.derive.windows.periods import periods
from stepscope.intervals import Spans, intersect, union
from stepscope.intervals.arrays import I64, NONE, Mask, numbered

#: Calls of the OS that write files.
_WRITES = r"(?i)^(p?write(v|64)?|fwrite|fflush|f(data)?sync|sync_file_range|close|fclose|rename)$"


class Inside(Struct, frozen=True, dict=True):
    """A stretch of a rank: on the GPU `gpu`, with the host's part of it; `ops` is what was launched in it.

    Ranges over all of `marked` are around the stretch, not in it.
    """

    data: RankData
    gpu: Spans
    host: Spans
    ops: I64
    marked: tuple[int, int] = (0, 0)

    @property
    def length(self) -> int:
        return self.gpu.length()

    @cached_property
    def made_of(self) -> dict[str, int]:
        """GPU time by what ran, and where nothing did, by what the host was doing (`contents`)."""
        sums: dict[str, int] = {}
        for what, _, ns in contents(self.data, self.gpu):
            sums[what] = sums.get(what, 0) + ns
        return sums

    @cached_property
    def _both(self) -> Spans:
        """From the first of host and GPU to the last: a host that runs ahead is early."""
        return union(np.r_[self.gpu.start, self.host.start], np.r_[self.gpu.end, self.host.end])

    @cached_property
    def ranges(self) -> dict[str, int]:
        """Time in ranges of the program by their text, numbers left out; not those around all of the stretch."""
        return dict(zip(self._ranges["text"], self._ranges["ns"], strict=True))

    def entered(self, pattern: str) -> int:
        """How many ranges with such a text begin in it."""
        return int(self._ranges.filter(pl.col("text").str.contains(pattern))["begun"].sum())

    @cached_property
    def _ranges(self) -> pl.DataFrame:
        frame = self.data.anchor_ranges()
        both = self._both
        if not frame.height or not len(both):
            return pl.DataFrame(schema={"text": pl.String, "ns": pl.Int64, "begun": pl.Int64})
        lo, hi = int(both.start[0]), int(both.end[-1])
        frame = frame.filter((pl.col("start_ns") < hi) & (pl.col("end_ns") > lo))
        begin, end = self.marked
        around = ((frame["start_ns"] <= begin) & (frame["end_ns"] >= end)).to_numpy()
        table = pl.DataFrame(
            {
                "text": frame["text"].str.replace_all(r"\d+", "#"),
                "ns": np.minimum(frame["end_ns"].to_numpy(), hi) - np.maximum(frame["start_ns"].to_numpy(), lo),
                "begun": self.host.contains(frame["start_ns"].to_numpy()),
            }
        ).filter(pl.Series(~around))
        sums = table.group_by("text").agg(pl.col("ns").sum(), pl.col("begun").sum().cast(pl.Int64))
        return sums.sort("ns", "text")

    @cached_property
    def to_host(self) -> tuple[int, int]:
        """Copies to the host: how many, and bytes."""
        ops = self.ops[self.data.role[self.ops] == COPY]
        rows = self.data.ops[ops]
        rows = rows.filter((pl.col("copy_kind") == "DtoH").fill_null(value=False))
        return rows.height, int(rows["bytes"].sum() or 0)

    @cached_property
    def allocating(self) -> int:
        """Host time in calls that allocate or free memory of the device."""
        calls = self.data.calls
        rows = call_causes(self.data) == ALLOC if calls.height else np.empty(0, bool)
        start, end = (calls[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        return intersect(union(start, end), self._both).length()

    def records(self, kind: str, pattern: str | None = None) -> int:
        """Host time in records of a kind (`gc`, `compile`, `osrt`), of names that match."""
        host = self.data.host
        if not host.height:
            return 0
        rows: Mask = (host["kind"] == kind).to_numpy()
        if pattern is not None:
            rows = rows & self.data.profile.names_with(pattern)[host["name"].to_numpy()]
        start, end = (host[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        return intersect(union(start, end), self._both).length()

    @property
    def threads_begun(self) -> int:
        """Threads that call CUDA for the first time in it, and launch nothing: those that pin a loader's batches."""
        first = self.data.once(_helpers)
        return int(self._both.contains(first).sum()) if len(self._both) else 0

    @property
    def writing(self) -> int:
        """Host time in calls of the OS that write files, where those are recorded."""
        return self.records("osrt", _WRITES)

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Compute kernels by name id: `count`, `ns`."""
        ops = self.ops[self.data.role[self.ops] == COMPUTE]
        table = pl.DataFrame({"name": self.data.name[ops], "ns": (self.data.end - self.data.start)[ops]})
        return table.group_by("name").agg(pl.len().cast(pl.Int64).alias("count"), pl.col("ns").sum())

    @cached_property
    def launches(self) -> dict[int, int]:
        """Compute kernels by the thread that launched them; the thread of the first comes first."""
        ops = self.ops[self.data.role[self.ops] == COMPUTE]
        ops = ops[self.data.launch[ops] != NONE]
        if not len(ops):
            return {}
        tid = self.data.calls["tid"].cast(pl.Int64).to_numpy()[np.sort(self.data.launch[ops])]
        threads, of = numbered(tid)
        counts = dict(zip(threads.tolist(), np.bincount(of, minlength=len(threads)).tolist(), strict=True))
        return {int(tid[0]): counts.pop(int(tid[0]))} | counts


def inside_step(r: RankRun, k: int) -> Inside:
    """The k-th step of a rank, without what lies between."""
    steps = periods(r.data)
    assert steps is not None, "only asked of steps"
    ops, (lo, hi), _ = steps.of(k)
    marked = int(steps.anchors.start[k]), int(steps.anchors.end[k])
    return Inside(r.data, Spans.of(int(r.until[k]), int(r.edges[k + 1])), Spans.of(lo, hi), ops, marked)


def inside_between(r: RankRun, k: int) -> Inside:
    """What lies between the k-th step of a rank and the one before."""
    lo, hi = int(r.edges[k]), int(r.until[k])
    host = r.between_on_host
    at = int(np.searchsorted(host.start, periods_begin(r, k)))
    on_host = Spans(host.start[at : at + 1], host.end[at : at + 1])
    begin, end = (int(on_host.start[0]), int(on_host.end[0])) if len(on_host) else (lo, hi)
    ops = r.data.launched_between(begin, end)[0]
    return Inside(r.data, Spans.of(lo, hi), on_host, ops, (begin - 1, end + 1))


def periods_begin(r: RankRun, k: int) -> int:
    """When the k-th step begins on the host."""
    steps = periods(r.data)
    assert steps is not None, "only asked of steps"
    return int(steps.cpu[k])


def _helpers(data: RankData) -> I64:
    """When threads that launch nothing first call CUDA."""
    calls = data.calls.select("tid", "start_ns")
    launch = data.launch[data.launch != NONE]
    launching = calls["tid"].gather(np.unique(launch)).unique()
    others = calls.filter(~pl.col("tid").is_in(launching.implode()))
    first: I64 = others.group_by("tid").agg(pl.col("start_ns").min())["start_ns"].sort().to_numpy().astype(np.int64)
    return first


def nothing(data: RankData) -> Inside:
    """What a stretch between steps is beside: usually there is none."""
    return Inside(data, Spans.empty(), Spans.empty(), np.empty(0, np.int64))

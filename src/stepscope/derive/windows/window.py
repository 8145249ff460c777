"""A window on one rank: chosen on the host's timeline, measured on the GPU's (semantics §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

import numpy as np
import polars as pl

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.periods import Periods
from stepscope.derive.windows.steps import Anchors
from stepscope.intervals.arrays import I64
from stepscope.model.memo import cached_property
from stepscope.model.note import Note
from stepscope.model.result import OfRank, OfWindow, Row, WindowRow, rows
from stepscope.model.times import ABSOLUTE
from stepscope.model.units import instant

#: Label of a window that is all that was captured.
WHOLE = "(whole capture)"

#: What a window is: a step (its period), a chunk, another range, a span of GPU time that the user gave, the capture.
Kind = Literal["step", "chunk", "range", "span", "capture"]


@dataclass(frozen=True, eq=False)
class Window:
    """One instance on one rank. GPU times are null where nothing was launched in it.

    A window is equal to itself alone, so that what is derived of it can be kept (`RankData.once`).
    """

    rank: int
    pid: int | None
    label: str
    index: int
    count: int
    cpu_start_ns: int | None
    cpu_end_ns: int | None
    gpu_start_ns: int | None
    gpu_end_ns: int | None
    #: rows, within the rank's ops, of the ops that belong to it
    ops: I64 = field(repr=False, default_factory=lambda: np.empty(0, np.int64))
    kind: Kind = "range"

    @property
    def clipped(self) -> bool:
        """A --start/--end window: ops are cut at its edges."""
        return self.kind == "span"

    @property
    def gpu_ns(self) -> int:
        """Length of the GPU window."""
        return 0 if self.gpu_start_ns is None or self.gpu_end_ns is None else self.gpu_end_ns - self.gpu_start_ns

    def lengths(self, data: RankData, ops: I64 | None = None) -> I64:
        """Durations of its ops (or of these), cut at the edges of a window that was given in GPU time."""
        chosen = self.ops if ops is None else ops
        if self.clipped and self.gpu_start_ns is not None and self.gpu_end_ns is not None:
            return data.lengths(self.gpu_start_ns, self.gpu_end_ns)[chosen]
        length: I64 = data.end[chosen] - data.start[chosen]
        return length

    @property
    def who(self) -> OfRank:
        """What a row about the window's rank begins with."""
        return {"rank": self.rank, "pid": self.pid}

    def key(self) -> OfWindow:
        """What names the window in a row of an answer."""
        return {"window": self.kind, "index": self.index, "label": self.label}

    def keyed(self, rows: Iterable[Row]) -> list[Row]:
        """Rows about this window, with its name beside the columns that they declare."""
        key = self.key()
        return [cast(Row, {**row, **key}) for row in rows]

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A table about this window, with its name."""
        return rows.with_columns(pl.lit(value).alias(name) for name, value in self.key().items())

    def of_rank(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A table about this window, with its name, its rank and that rank's process."""
        who = pl.lit(self.rank, pl.Int64).alias("rank"), pl.lit(self.pid, pl.Int64).alias("pid")
        return self.named(rows.select(*who, pl.all()))

    def row(self) -> WindowRow:
        """The window as JSON's `window` shows it."""
        data = asdict(self)
        del data["ops"]
        return cast(WindowRow, data)


@dataclass
class Windows:
    """The windows of a question, one per rank (more with `--index all`), and what was noted on the way."""

    spans: list[Window]
    notes: list[Note]
    #: `--index all`: every row of an answer says which window it is of
    all: bool = False

    def rows(self) -> list[WindowRow]:
        return [w.row() for w in self.spans]

    def table(self, row: type[Row], data: Sequence[Row] | pl.DataFrame) -> pl.DataFrame:
        """A table of such rows; with the window's name where all were asked for (`Window.keyed`, `Window.named`)."""
        return rows(row, data, windows=self.all)

    def of(self, rank: int) -> list[Window]:
        return self._of_rank.get(rank, [])

    @cached_property
    def _of_rank(self) -> dict[int, list[Window]]:
        by_rank: dict[int, list[Window]] = {}
        for w in self.spans:
            by_rank.setdefault(w.rank, []).append(w)
        return by_rank


def of_step(steps: Periods, k: int) -> Window:
    """The k-th step: its period, from the end of the step before it to its own end."""
    data, label = steps.data, steps.anchors.label
    ops, cpu, gpu = steps.of(k)
    return Window(data.rank, data.pid, label[k], k, len(label), cpu[0], cpu[1], gpu[0], gpu[1], ops, "step")


def by_launch(data: RankData, anchors: Anchors, k: int, kind: Kind, period: bool = False) -> Window:
    """The window of the k-th range: its own ops, or with `period` all up to the next one's first."""
    if period and k + 1 < len(anchors.label):
        return _by_period(data, anchors, k, kind)
    lo, hi = int(anchors.start[k]), int(anchors.end[k])
    ops, gpu = data.launched_between(lo, hi)
    return Window(data.rank, data.pid, anchors.label[k], k, len(anchors.label), lo, hi, gpu[0], gpu[1], ops, kind)


def _by_period(data: RankData, anchors: Anchors, k: int, kind: Kind) -> Window:
    """From the first op launched in the instance to the first op launched in the next one."""
    lo, then, hi = int(anchors.start[k]), int(anchors.start[k + 1]), int(anchors.end[k + 1])
    ops, (first, last) = data.launched_between(lo, then)
    following = data.launched_between(then, hi)[1][0]
    if first is not None and following is not None and following > first:
        last = following
    return Window(data.rank, data.pid, anchors.label[k], k, len(anchors.label), lo, then, first, last, ops, kind)


def whole_capture(data: RankData) -> Window:
    """All that was captured: from the first op on, or from the trainer's setup label, which says where it begins."""
    ops = np.arange(len(data.start), dtype=np.int64)
    lo, hi = data.host_span()
    gpu: tuple[int | None, int | None] = (None, None)
    if len(ops):
        first = int(data.start.min())
        begin = data.labelled_at()
        gpu = (min(first, begin) if begin is not None else first, int(data.end.max()))
    return Window(data.rank, data.pid, WHOLE, 0, 1, lo, hi, gpu[0], gpu[1], ops, "capture")


def by_gpu_time(data: RankData, start: int, end: int, since: int | None = None) -> Window:
    """A span of GPU time. `since` is its start as the user gave it, where that counts from the capture's beginning."""
    ops = np.flatnonzero((data.start < end) & (data.end > start))
    at, clock = (start, ABSOLUTE) if since is None else (since, "")
    label = f"[{clock}{instant(at)}, {clock}{instant(at + end - start)})"
    return Window(data.rank, data.pid, label, 0, 1, None, None, start, end, ops, "span")

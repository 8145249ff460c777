"""The rows of the timeline: ops by stream, parts of a rank's time, ranges, calls and counters, as tracks.

A report of a window and a server of a whole capture make the same rows here, of what `stepscope timeline` answers; each
rank's own times become drawn ones by its `Line`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.derive.comm.purpose import UNKNOWN
from stepscope.intervals.apart import apart
from stepscope.intervals.arrays import F64, I64
from stepscope.timeline.counters import CounterTrack
from stepscope.timeline.kinds import COUNTER, MARKS, PARTS
from stepscope.timeline.messages import Group
from stepscope.timeline.track import Track

Row = Track | CounterTrack
#: Ranges of one depth that overlap lie on so many lines at most.
_LINES = 3


class Texts:
    """Every text once, by number."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def ids(self, values: pl.Series) -> I64:
        distinct = values.fill_null("").unique(maintain_order=True).to_list()
        numbers_of = {text: self._ids.setdefault(text, len(self._ids)) for text in distinct}
        numbers: I64 = values.fill_null("").replace_strict(numbers_of, return_dtype=pl.Int64).to_numpy()
        return numbers

    def series(self) -> pl.Series:
        return pl.Series("text", list(self._ids), dtype=pl.String)


class Families:
    """What sort of work marks are: numbered over the scene."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ids(self, names: Iterable[str]) -> I64:
        for name in names:
            if name not in self.names:
                self.names.append(name)
        return np.array([self.names.index(name) for name in names], np.int64)


@dataclass(frozen=True)
class Ops:
    """Ops of one rank, on its own clock. `role` counts in MARKS, `family` in the scene's, `name` in its texts."""

    start: I64
    end: I64
    stream: I64
    role: I64
    family: I64
    name: I64
    #: what a report says of each op, which has nobody to ask
    carried: Mapping[str, I64] = field(default_factory=dict)


@dataclass(frozen=True)
class Making:
    """What rows are made with, and what they share."""

    #: by rank, from its own clock to drawn time
    lines: dict[int, Line]
    #: rows of `streams`: what each is for
    streams: pl.DataFrame
    texts: Texts = field(default_factory=Texts)
    families: Families = field(default_factory=Families)

    def of_ops(self, rank: int, ops: Ops) -> Iterator[Track]:
        """A row for each stream."""
        start, end = self._drawn(rank, ops.start, ops.end)
        key = ops.family * len(MARKS) + ops.role
        purposes = self.streams.filter(pl.col("rank") == rank).select("stream", "kind", "purpose").iter_rows()
        labels = {stream: _purpose(kind, purpose) for stream, kind, purpose in purposes}
        for stream in np.unique(ops.stream).tolist():
            rows = np.flatnonzero(ops.stream == stream)
            rows = rows[np.argsort(start[rows], kind="stable")]
            keys, local = np.unique(key[rows], return_inverse=True)
            named = f"stream {stream}" if stream >= 0 else "no stream"
            yield Track(
                rank,
                "streams",
                stream,
                f"{named} {labels.get(stream, '')}".strip(),
                start[rows],
                end[rows],
                ops.name[rows],
                local.reshape(-1).astype(np.uint8),
                (keys % len(MARKS)).astype(np.uint8),
                keys // len(MARKS),
                rows,
                carried={name: values[rows] for name, values in ops.carried.items()},
            )

    def of_parts(self, rank: int, frame: pl.DataFrame) -> Iterator[Track]:
        """What the rank's time is made of, without a gap."""
        frame, start, end = self._times(rank, frame)
        names = self.families.ids([name for _, name in PARTS.values()])
        kinds = (len(MARKS) + np.arange(len(PARTS))).astype(np.uint8)
        number = {part: k for k, part in enumerate(PARTS)}
        family = frame["part"].replace_strict(number, return_dtype=pl.UInt8).to_numpy()
        none = np.zeros(len(start), np.int64)
        empty = int(self.texts.ids(pl.Series([""]))[0])
        yield Track(rank, "parts", 0, "", start, end, none + empty, family, kinds, names, none, shares=True)

    def of_ranges(self, rank: int, frame: pl.DataFrame) -> Iterator[Track]:
        """Ranges where their work ran, the outermost first."""
        frame, start, end = self._times(rank, frame)
        depth, name = frame["depth"].to_numpy(), self.texts.ids(frame["range"])
        for level in np.unique(depth).tolist():
            label = "ranges on the GPU" if level == 0 else ""
            at = np.flatnonzero(depth == level)
            yield from self._plain(rank, "ranges", level, label, start[at], end[at], name[at], "range")

    def of_host(self, rank: int, frame: pl.DataFrame) -> Iterator[Track]:
        """Ranges and calls of every thread: ranges by depth, calls below them."""
        frame, start, end = self._times(rank, frame)
        name, tid = self.texts.ids(frame["name"]), frame["tid"].to_numpy()
        call = (frame["kind"] == "call").to_numpy()
        depth = np.where(call, np.iinfo(np.int64).max, frame["depth"].to_numpy())
        for thread in np.unique(tid).tolist():
            for level, deep in enumerate(np.unique(depth[tid == thread]).tolist()):
                at = np.flatnonzero((tid == thread) & (depth == deep))
                kind: Literal["range", "call"] = "call" if call[at[0]] else "range"
                label = f"thread {thread}: {'calls' if kind == 'call' else 'ranges'}"
                shown = label if kind == "call" or level == 0 else ""
                yield from self._plain(rank, "host", thread, shown, start[at], end[at], name[at], kind)

    def of_samples(self, rank: int, level: int, label: str, unit: str, start: I64, value: F64) -> CounterTrack:
        """A counter, whose samples hold until the next one."""
        return CounterTrack(rank, level, label, unit, self.lines[rank].at(start), value, COUNTER)

    def _drawn(self, rank: int, start: I64, end: I64) -> tuple[I64, I64]:
        line = self.lines[rank]
        return line.at(start), line.at(end)

    def _times(self, rank: int, frame: pl.DataFrame) -> tuple[pl.DataFrame, I64, I64]:
        """By start."""
        frame = frame.sort("start_ns", "end_ns", maintain_order=True)
        return frame, *self._drawn(rank, frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())

    def _plain(
        self,
        rank: int,
        group: Group,
        level: int,
        label: str,
        start: I64,
        end: I64,
        name: I64,
        kind: Literal["range", "call"],
    ) -> Iterator[Track]:
        """Marks of one kind, on as many lines as they need to lie beside each other, up to three."""
        line = lines_of(start, end)
        number = self.families.ids([f"{kind}s"])
        kinds: npt.NDArray[np.uint8] = np.array([MARKS.index(kind)], np.uint8)
        for each in np.unique(line).tolist():
            at = np.flatnonzero(line == each)
            family = np.zeros(len(at), np.uint8)
            yield Track(
                rank, group, level, label if each == 0 else "", start[at], end[at], name[at], family, kinds, number, at
            )


def _purpose(kind: str | None, purpose: str | None) -> str:
    """What a stream is for; of communication, for which."""
    has_purpose = kind == "comm" and purpose not in (None, UNKNOWN)
    return (purpose if has_purpose else kind) or ""


def lines_of(start: I64, end: I64) -> I64:
    """On which line each mark lies: the first where the marks before it have ended; what finds none, on the last."""
    line = np.full(len(start), _LINES - 1, np.int64)
    rest = np.arange(len(start))
    for each in range(_LINES - 1):
        taken = apart(start[rest], end[rest])
        line[rest[taken]] = each
        rest = rest[~taken]
    return line

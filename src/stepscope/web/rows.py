"""The rows of the timeline: ops by stream, parts of a rank's time, ranges, calls and counters, as tracks.

Figures and times are those that `stepscope timeline` gives of the whole capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from stepscope import api
from stepscope.derive.comm.common_clock import Line
from stepscope.derive.rank.data import COMM, ranks_of
from stepscope.intervals.apart import apart
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note
from stepscope.model.taxonomy import COMMUNICATION
from stepscope.report.asker import Asker
from stepscope.report.lanes import COUNTER, GROUPS, MARKS, PARTS, STREAMS, Labels
from stepscope.web.counters import CounterTrack, samples
from stepscope.web.track import Track

Row = Track | CounterTrack
#: Ranges of one depth that overlap lie on so many lines at most.
_LINES = 3


class Texts:
    """Every text once, by number."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def ids(self, values: pl.Series) -> I64:
        distinct = values.fill_null("").unique(maintain_order=True).to_list()
        known = {text: self._ids.setdefault(text, len(self._ids)) for text in distinct}
        numbers: I64 = values.fill_null("").replace_strict(known, return_dtype=pl.Int64).to_numpy()
        return numbers

    def series(self) -> pl.Series:
        return pl.Series("text", list(self._ids), dtype=pl.String)


class Families:
    """What sort of work marks are: numbered over the scene."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ids(self, names: list[str]) -> I64:
        for name in names:
            if name not in self.names:
                self.names.append(name)
        return np.array([self.names.index(name) for name in names], np.int64)


@dataclass(frozen=True)
class Making:
    """What rows are made of, and what they share."""

    profile: api.Profile
    asker: Asker
    #: by rank, from its own clock to drawn time
    lines: dict[int, Line]
    texts: Texts = field(default_factory=Texts)
    families: Families = field(default_factory=Families)
    #: what a reader must know of the clocks, and of what was cut off
    notes: list[Note] = field(default_factory=list)

    def numbering(self, ids: pl.Series) -> I64:
        """By number of a name in the profile, of these names: its number as a text of the scene."""
        numbers = np.zeros(len(self.profile.names) + 1, np.int64)
        numbers[ids.to_numpy()] = self.texts.ids(self.profile.names.gather(ids))
        return numbers

    def marks(self, by: str) -> Iterator[tuple[int, I64, I64, pl.DataFrame]]:
        """What `timeline --by` shows, by start, with drawn times; a rank at a time: all at once are hundreds of MB."""
        for data in ranks_of(self.profile):
            if data.rank not in self.lines or not len(data.start):
                continue
            alone = self.profile.view([data.rank])
            assert isinstance(alone, api.Profile)
            frame = api.analyse(alone, "timeline", by=by, whole=True).rows
            if frame.height:  # an answer without rows has no types
                frame = frame.sort("start_ns", "end_ns", maintain_order=True)
                line = self.lines[data.rank]
                yield data.rank, line.at(frame["start_ns"].to_numpy()), line.at(frame["end_ns"].to_numpy()), frame

    def rows(self) -> Iterator[Row]:
        """Every row, what belongs together after each other; ranks are not yet."""
        for make in (_parts, _ranges, _streams, _counters, _host):
            yield from make(self)


def _streams(of: Making) -> Iterator[Track]:
    ids = of.profile.ops["name"].unique().sort()
    names = of.profile.names.gather(ids)
    text_of = of.numbering(ids)
    kinds_of_work = of.profile.taxonomy.family(names)
    labels = Labels(of.asker, {})
    distinct = sorted({*kinds_of_work.to_list(), COMMUNICATION})
    family_of = np.zeros(len(of.profile.names) + 1, np.int64)
    family_of[ids.to_numpy()] = kinds_of_work.replace_strict({f: i for i, f in enumerate(distinct)}).to_numpy()
    scene_ids = of.families.ids(distinct)
    comm = distinct.index(COMMUNICATION)
    for data in ranks_of(of.profile):
        if data.rank not in of.lines:
            continue
        start, end = of.lines[data.rank].at(data.start), of.lines[data.rank].at(data.end)
        family = np.where(data.role == COMM, comm, family_of[data.name])  # a peer copy is communication, too
        key = family * len(MARKS) + data.role
        for stream in np.unique(data.stream).tolist():
            rows = np.flatnonzero(data.stream == stream)
            rows = rows[np.argsort(start[rows], kind="stable")]
            keys, local = np.unique(key[rows], return_inverse=True)
            yield Track(
                data.rank,
                GROUPS[STREAMS],
                stream,
                labels.of(data.rank, STREAMS, stream),
                start[rows],
                end[rows],
                text_of[data.name[rows]],
                local.reshape(-1).astype(np.uint8),
                (keys % len(MARKS)).astype(np.uint8),
                scene_ids[keys // len(MARKS)],
                rows,
            )


def _parts(of: Making) -> Iterator[Track]:
    names = of.families.ids([name for _, name in PARTS.values()])
    number = {part: k for k, part in enumerate(PARTS)}
    kinds = (len(MARKS) + np.arange(len(PARTS))).astype(np.uint8)
    for rank, start, end, frame in of.marks("part"):
        family = frame["part"].replace_strict(number, return_dtype=pl.UInt8).to_numpy()
        none = np.zeros(len(start), np.int64)
        empty = int(of.texts.ids(pl.Series([""]))[0])
        yield Track(rank, "parts", 0, "", start, end, none + empty, family, kinds, names, none, shares=True)


def _ranges(of: Making) -> Iterator[Track]:
    of.notes.extend(of.asker.ask("timeline", by="range", whole=True).notes)
    for rank, start, end, frame in of.marks("range"):
        depth, name = frame["depth"].to_numpy(), of.texts.ids(frame["range"])
        for level in np.unique(depth).tolist():
            label = "ranges on the GPU" if level == 0 else ""
            at = np.flatnonzero(depth == level)
            yield from _plain(rank, "ranges", level, label, start[at], end[at], name[at], "range", of.families)


def _host(of: Making) -> Iterator[Track]:
    for rank, start, end, frame in of.marks("host"):
        name, tid = of.texts.ids(frame["name"]), frame["tid"].to_numpy()
        call = (frame["kind"] == "call").to_numpy()
        depth = np.where(call, np.iinfo(np.int64).max, frame["depth"].to_numpy())
        for thread in np.unique(tid).tolist():
            for level, deep in enumerate(np.unique(depth[tid == thread]).tolist()):
                at = np.flatnonzero((tid == thread) & (depth == deep))
                kind = "call" if call[at[0]] else "range"
                label = f"thread {thread}: {'calls' if kind == 'call' else 'ranges'}"
                shown = label if kind == "call" or level == 0 else ""
                yield from _plain(rank, "host", thread, shown, start[at], end[at], name[at], kind, of.families)


def _plain(
    rank: int,
    group: str,
    level: int,
    label: str,
    start: I64,
    end: I64,
    name: I64,
    kind: str,
    families: Families,
) -> Iterator[Track]:
    """Marks of one kind, on as many lines as they need to lie beside each other, up to three."""
    line = lines_of(start, end)
    number = families.ids([f"{kind}s"])
    kinds = np.array([MARKS.index(kind)], np.uint8)
    for each in np.unique(line).tolist():
        at = np.flatnonzero(line == each)
        family = np.zeros(len(at), np.uint8)
        said = label if each == 0 else ""
        yield Track(rank, group, level, said, start[at], end[at], name[at], family, kinds, number, at)


def lines_of(start: I64, end: I64) -> I64:
    """On which line each mark lies: the first where the marks before it have ended; what finds none, on the last."""
    line = np.full(len(start), _LINES - 1, np.int64)
    rest = np.arange(len(start))
    for each in range(_LINES - 1):
        taken = apart(start[rest], end[rest])
        line[rest[taken]] = each
        rest = rest[~taken]
    return line


def _counters(of: Making) -> Iterator[CounterTrack]:
    for level, (rank, label, unit, start, value) in enumerate(samples(of.profile)):
        if rank in of.lines:
            yield CounterTrack(rank, level, label, unit, of.lines[rank].at(start), value, COUNTER)

"""The rows of a whole capture: ops from the profile's own arrays, as they may be millions; the rest as it is answered.

Figures and times are those that `stepscope timeline` gives of the whole capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from stepscope import api
from stepscope.derive.rank.data import COMM, ranks_of
from stepscope.intervals.arrays import I64
from stepscope.model.note import Note
from stepscope.model.taxonomy import COMMUNICATION
from stepscope.report.asker import Asker
from stepscope.timeline.counters import CounterTrack, samples
from stepscope.timeline.rows import Making, Ops, Row
from stepscope.timeline.track import Track


@dataclass(frozen=True)
class Reading:
    """What rows are made of."""

    profile: api.Profile
    asker: Asker
    making: Making
    #: what a reader must know of the clocks, and of what was cut off
    notes: list[Note] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """Every row, what belongs together after each other; ranks are not yet."""
        for rank, frame in self._answers("part"):
            yield from self.making.of_parts(rank, frame)
        self.notes.extend(self.asker.ask("timeline", by="range", whole=True).notes)
        for rank, frame in self._answers("range"):
            yield from self.making.of_ranges(rank, frame)
        yield from self._streams()
        yield from self._counters()
        for rank, frame in self._answers("host"):
            yield from self.making.of_host(rank, frame)

    def numbering(self, ids: pl.Series) -> I64:
        """By number of a name in the profile, of these names: its number as a text of the scene."""
        numbers = np.zeros(len(self.profile.names) + 1, np.int64)
        numbers[ids.to_numpy()] = self.making.texts.ids(self.profile.names.gather(ids))
        return numbers

    def _answers(self, by: str) -> Iterator[tuple[int, pl.DataFrame]]:
        """What `timeline --by` shows; a rank at a time: all at once are hundreds of MB."""
        for data in ranks_of(self.profile):
            if data.rank not in self.making.lines or not len(data.start):
                continue
            alone = self.profile.view([data.rank])
            assert isinstance(alone, api.Profile)
            frame = api.analyse(alone, "timeline", by=by, whole=True).rows
            if frame.height:  # an answer without rows has no types
                yield data.rank, frame

    def _streams(self) -> Iterator[Track]:
        ids = self.profile.ops["name"].unique().sort()
        text_of = self.numbering(ids)
        work = self.profile.taxonomy.family(self.profile.names.gather(ids))
        distinct = sorted({*work.to_list(), COMMUNICATION})
        number = dict(zip(distinct, self.making.families.ids(distinct).tolist(), strict=True))
        family_of = np.zeros(len(self.profile.names) + 1, np.int64)
        family_of[ids.to_numpy()] = work.replace_strict(number, return_dtype=pl.Int64).to_numpy()
        for data in ranks_of(self.profile):
            if data.rank in self.making.lines:
                role = data.role.astype(np.int64)
                # A peer copy is communication, too.
                family = np.where(data.role == COMM, number[COMMUNICATION], family_of[data.name])
                name = text_of[data.name]
                ops = Ops(data.start, data.end, data.stream.astype(np.int64), role, family, name)
                yield from self.making.of_ops(data.rank, ops)

    def _counters(self) -> Iterator[CounterTrack]:
        if not self.profile.has("counters"):
            return
        level = 0
        for rank, frame in self.profile.by_rank("counters"):
            named = frame.with_columns(self.profile.names.gather(frame["name"]).alias("counter"))
            for label, unit, start, value in samples(named):
                if rank in self.making.lines:
                    yield self.making.of_samples(rank, level, label, unit, start, value)
                level += 1

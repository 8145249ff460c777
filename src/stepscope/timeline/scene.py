"""Rows of marks on one clock: what is drawn, whoever asks, and from which views are answered.

Times are drawn as nanoseconds since the first moment, on the clock of all ranks; each rank's `Line` leads back to its
own clock, which is what commands take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from stepscope.derive.comm.common_clock import Line
from stepscope.model.kernel_names import kernel_base
from stepscope.timeline.counters import CounterTrack
from stepscope.timeline.kinds import KINDS
from stepscope.timeline.messages import Drawing, DrawnRank, LaneData, Rank, Step, WindowSpan
from stepscope.timeline.rows import Making, Row
from stepscope.timeline.track import Track


@dataclass
class Scene:
    """Rows, ready to be looked at."""

    #: by rank, from its own clock to drawn time
    lines: dict[int, Line]
    tracks: list[Row]
    texts: pl.Series
    #: what each text is called in a box
    short: list[str]
    families: list[str]
    end: int

    def own(self, rank: int, drawn: int) -> int:
        """A drawn moment on the rank's own clock."""
        line = self.lines[rank]
        return line.own + round((drawn - line.common) * line.rate)

    def drawing(
        self, ranks: Iterable[Rank], ops: int, windows: Mapping[int, list[WindowSpan]], steps: list[Step]
    ) -> Drawing:
        """What the page is told before it has marks."""
        return Drawing(
            end=self.end,
            ops=ops,
            kinds=KINDS,
            families=self.families,
            ranks=[self._rank(rank, windows.get(rank["rank"], [])) for rank in ranks if rank["rank"] in self.lines],
            lanes=[_lane(track) for track in self.tracks],
            steps=steps,
        )

    def _rank(self, rank: Rank, windows: list[WindowSpan]) -> DrawnRank:
        line = self.lines[rank["rank"]]
        return DrawnRank(**rank, own=str(line.own), drawn=line.common, rate=line.rate, windows=windows)


def arranged(making: Making, rows: Iterable[Row]) -> Scene:
    """The scene of these rows: rank by rank, what tells nothing last."""
    order = {rank: i for i, rank in enumerate(making.lines)}
    tracks = sorted(rows, key=lambda t: (order[t.rank], isinstance(t, CounterTrack) and not t.value.any()))
    texts = making.texts.series()
    end = max((int(t.end.max()) for t in tracks if isinstance(t, Track) and len(t.end)), default=1)
    short = [kernel_base(text) for text in texts.to_list()]
    return Scene(making.lines, tracks, texts, short, making.families.names, end)


def _lane(track: Row) -> LaneData:
    lane = LaneData(rank=track.rank, group=track.group, level=track.level, label=track.label, n=len(track.start))
    if isinstance(track, CounterTrack):
        lane["most"], lane["unit"] = track.most, track.unit
    return lane

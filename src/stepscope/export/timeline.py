"""All that is drawn: tracks, texts, and the events of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from stepscope.export.content import Content
from stepscope.export.events import Layer, Texts, layer_of
from stepscope.export.findings import findings_layer
from stepscope.export.tracks import Track, Tracks
from stepscope.model.exported import Header
from stepscope.model.result import WindowRow


@dataclass
class Timeline:
    """Everything to draw."""

    header: Header
    tracks: list[Track]
    texts: list[str]
    layers: list[Layer] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first moment."""
        return min((int(layer.events["start"].min()) for layer in self.layers), default=0)  # type: ignore[arg-type]

    @property
    def count(self) -> int:
        """How many events there are."""
        return sum(layer.events.height for layer in self.layers)


def timeline(content: Content, findings: pl.DataFrame | None = None, windows: Sequence[WindowRow] = ()) -> Timeline:
    """The content as events; `findings` are rows of `diagnose`, of these windows."""
    tracks, texts = Tracks(), Texts(content.names)
    layers = []
    if findings is not None:
        drawn = findings_layer(findings, windows, content.clock, tracks, texts)
        layers += [drawn] if drawn is not None else []
    for row in content.ranks.iter_rows(named=True):
        tracks.rank(row)
        for table, frame in content.tables.items():
            first, last = (frame["rank"].search_sorted(row["rank"], side) for side in ("left", "right"))
            of_rank = frame[first:last]
            if of_rank.height:
                layers.append(layer_of(content, tracks, texts, row, table, of_rank))
    return Timeline(content.header, tracks.all, texts.all, layers)

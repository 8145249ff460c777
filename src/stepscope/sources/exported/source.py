"""Tables that were exported, as a source: whatever held them, they have the model's columns already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.exported import VERSION, Header
from stepscope.model.note import Note
from stepscope.model.schema import TABLES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform, process_table

#: Tables with `proc` and the columns that the export has; texts are texts, words are words.
Tables = Mapping[str, pl.DataFrame]


class ExportedSource:
    """One export. `load` reads all its tables at once: they lie in one stream of events."""

    def __init__(self, path: Path, header: Header, load: Callable[[], Tables]) -> None:
        if header.version > VERSION:
            raise BadInput(f"{path}: exported by a newer stepscope", "update stepscope, or export it again")
        self.path = path
        self.quality = Quality([Note.from_data(note) for note in header.notes])
        self._header, self._load = header, load
        info = header.info
        self.info = SourceInfo(
            path.name,
            info.get("format") or "stepscope",  # of what was exported: answers are the same
            tool=info.get("tool"),
            schema=info.get("schema"),
            epoch_ns=info.get("epoch_ns"),
            capture_ns=info.get("capture_ns"),
            facts=info.get("facts") or {},
        )

    def processes(self) -> pl.DataFrame:
        return process_table(self._header.processes)

    def tables(self) -> frozenset[str]:
        return frozenset(self._header.tables) & frozenset(TABLES)

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table not in self.tables() or table not in self._tables:
            return Chunk(empty(table, part))
        wanted = TABLES[table].part(part)
        frame = self._tables[table]
        frame = frame.select(c for c in frame.columns if c in wanted)
        texts = [c for c in TABLES[table].name_ids() if c in frame.columns]
        names = pl.Series("name", [], dtype=pl.String)
        if texts:
            names = pl.concat([frame[c].rename("name") for c in texts]).drop_nulls().unique(maintain_order=True)
            words = pl.Enum(names)
            frame = frame.with_columns(pl.col(c).cast(words).to_physical().cast(pl.UInt32) for c in texts)
        defaults = {c.name: c.instead for c in TABLES[table].delivered(wanted) if c.instead is not None}
        whole = conform(frame, table, part, self.quality)
        return Chunk(whole.with_columns(pl.col(c).fill_null(pl.lit(v)) for c, v in defaults.items()), names)

    @cached_property
    def _tables(self) -> Tables:
        return {name: canonical(frame, name) for name, frame in self._load().items() if name in TABLES}

"""A source that was opened elsewhere: what opening told is known here, and tables are read here only if asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.errors import BadInput
from stepscope.files.identity import Identity
from stepscope.model.columns import Part
from stepscope.model.note import Note
from stepscope.model.source import Chunk, Quality, Source, SourceInfo


@dataclass(frozen=True)
class Description:
    """What opening a file told: small, and all that numbering the ranks of a job needs."""

    info: SourceInfo
    processes: pl.DataFrame
    tables: frozenset[str]
    notes: list[Note]

    @staticmethod
    def of(source: Source) -> Description:
        processes, tables = source.processes(), source.tables()
        return Description(source.info, processes, tables, list(source.quality.notes))


class DescribedSource:
    """The file at `path`; `opener` opens it here. `describe` is to follow, once whoever opened it has told."""

    def __init__(self, path: Path, opener: Callable[[], Source]) -> None:
        self.path = path
        self.quality = Quality()
        self._opener = opener
        self._opened: Source | None = None
        try:
            self._identity = Identity(path)  # before anybody opens it: a change from here on is noticed
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})", "check its permissions") from None

    def describe(self, told: Description) -> None:
        self.info: SourceInfo = told.info
        self._told = told
        self._note(told.notes)

    def processes(self) -> pl.DataFrame:
        return self._told.processes

    def tables(self) -> frozenset[str]:
        return self._told.tables

    def read(self, table: str, part: Part = "core") -> Chunk:
        if self._opened is None:
            self._opened = self._opener()
            self.check()
        chunk = self._opened.read(table, part)
        self._note(self._opened.quality.notes)
        return chunk

    def check(self) -> None:
        self._identity.check()

    def _note(self, notes: list[Note]) -> None:
        for note in notes:
            self.quality.note(note)

"""A source of one content: what is read of a file that changes meanwhile is refused, never shown.

Readers open files by their names, table by table, and keep none of them open (a job may have ten thousand). So the
file is looked at before it is first opened, and again after every reading: only if it is the same, what was read is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import polars as pl

from stepscope.errors import BadInput
from stepscope.files.identity import Identity
from stepscope.model.columns import Part
from stepscope.model.source import Chunk, Quality, Reader, SourceInfo

T = TypeVar("T")


class GuardedSource:
    """What `opener` opens at `path`."""

    def __init__(self, path: Path, opener: Callable[[], Reader]) -> None:
        self.path = path
        try:
            self._identity = Identity(path)
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})", "check its permissions") from None
        self._reader = self._of_one_content(opener)

    @property
    def info(self) -> SourceInfo:
        return self._reader.info

    @property
    def quality(self) -> Quality:
        return self._reader.quality

    def processes(self) -> pl.DataFrame:
        return self._of_one_content(self._reader.processes)

    def tables(self) -> frozenset[str]:
        return self._of_one_content(self._reader.tables)

    def read(self, table: str, part: Part = "core") -> Chunk:
        return self._of_one_content(lambda: self._reader.read(table, part))

    def check(self) -> None:
        self._identity.check()

    def let_go(self) -> None:
        """Give back memory, where the reader holds some."""
        if let_go := getattr(self._reader, "let_go", None):
            let_go()

    def _of_one_content(self, read: Callable[[], T]) -> T:
        try:
            answer = read()
        except Exception:  # two contents look like damage
            self._identity.check()
            raise
        self._identity.check()
        return answer

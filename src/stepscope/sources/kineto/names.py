"""Texts as numbers while a file is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray


class _Ids(dict[str, int]):
    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


class Names:
    """One number per distinct text, in order of appearance."""

    def __init__(self) -> None:
        self._ids = _Ids()
        self._derived: dict[Callable[[str], str], dict[str, int]] = {}

    def ids(self, texts: Sequence[str]) -> NDArray[np.uint32]:
        return np.fromiter(map(self._ids.__getitem__, texts), np.uint32, len(texts))

    def ids_of(self, function: Callable[[str], str], texts: Sequence[str]) -> NDArray[np.uint32]:
        """Ids of `function` of each text, which is called once per distinct text of the file."""
        derived = self._derived.setdefault(function, {})
        for text in [t for t in dict.fromkeys(texts) if t not in derived]:
            derived[text] = self._ids[function(text)]
        return np.fromiter(map(derived.__getitem__, texts), np.uint32, len(texts))

    def optional(self, texts: Iterable[str | None]) -> pl.Series:
        """Ids with null for None."""
        ids = self._ids
        return pl.Series([None if t is None else ids[t] for t in texts], dtype=pl.UInt32)

    def texts(self) -> list[str]:
        return list(self._ids)


def compact(frame: pl.DataFrame, columns: Iterable[str], texts: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """The frame with ids renumbered to those it uses, and their texts."""
    present = [c for c in columns if c in frame.columns]
    used = np.zeros(len(texts), np.bool_)
    for column in present:
        used[frame[column].drop_nulls().to_numpy()] = True
    kept = np.flatnonzero(used)
    # One row more, so that an empty string table can be indexed too.
    renumber = pl.Series(np.append(np.cumsum(used, dtype=np.uint32) - 1, 0), dtype=pl.UInt32)
    frame = frame.with_columns(renumber.gather(frame[c]).alias(c) for c in present)
    return frame, pl.Series("name", [texts[i] for i in kept.tolist()], dtype=pl.String)

"""Texts: the export's string table, and the names of one chunk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.intervals.arrays import I64
from stepscope.sources.nsys.tables import Tables, decode, field

#: Above this id a look-up array would waste memory (cut files keep the ids of the whole capture).
_MAX_DIRECT = 1 << 22
_NO_NAME = 0xFFFFFFFF


class Strings:
    """`StringIds`: text by id."""

    def __init__(self, tables: Tables) -> None:
        frame = tables.frame("StringIds", {"id": field("id"), "value": field("value", kind="bytes")}).drop_nulls("id")
        self._text = dict(zip(frame["id"].to_list(), frame["value"].to_list(), strict=True))

    def get(self, key: int) -> str | None:
        raw = self._text.get(key)
        return None if raw is None else decode(raw)

    def containing(self, part: str) -> dict[int, str]:
        """Texts that contain `part` (ASCII), by id."""
        wanted = part.encode()
        return {key: decode(raw) for key, raw in self._text.items() if wanted in raw}


class Names:
    """The names that one chunk uses, numbered as they come."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def intern(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))

    def series(self) -> pl.Series:
        return pl.Series("name", list(self._ids), dtype=pl.String)

    def by_id(self, ids: pl.Series, strings: Strings, clean: Callable[[str], str] | None = None) -> pl.Series:
        """Ids of the string table as ids of this chunk; null where the string table has no such id."""

        def name(key: int) -> int:
            text = strings.get(key)
            return _NO_NAME if text is None else self.intern(clean(text) if clean else text)

        raw = (ids.fill_null(-1) if ids.null_count() else ids).to_numpy()
        texts = pl.Series(ids.name, _translate(raw, name))
        return texts.set(texts == _NO_NAME, None) if (texts == _NO_NAME).any() else texts

    def by_text(self, texts: pl.Series) -> pl.Series:
        """Raw texts as ids of this chunk; null for none."""
        frame = pl.DataFrame({"text": texts})
        unique = frame.unique(maintain_order=True)
        numbers = [self.intern(decode(raw)) if raw else None for raw in unique["text"]]
        unique = unique.with_columns(id=pl.Series(numbers, dtype=pl.UInt32))
        return frame.join(unique, on="text", how="left", maintain_order="left")["id"].alias(texts.name)


def _translate(raw: I64, name: Callable[[int], int]) -> npt.NDArray[np.uint32]:
    """`name` of every value, called once per distinct value."""
    if len(raw) == 0:
        return np.empty(0, dtype=np.uint32)
    highest = int(raw.max())
    if highest < _MAX_DIRECT and int(raw.min()) >= -1:
        used = np.zeros(highest + 2, dtype=bool)  # the last place is that of -1
        used[raw] = True
        table = np.full(highest + 2, _NO_NAME, dtype=np.uint32)
        for key in np.flatnonzero(used[:-1]).tolist():
            table[key] = name(key)
        return table[raw]
    values, inverse = np.unique(raw, return_inverse=True)
    return np.array([name(v) for v in values.tolist()], dtype=np.uint32)[inverse]

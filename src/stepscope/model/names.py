"""The string table of a profile: every text once, and what was judged of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

#: One entry per name: a Polars series, or a NumPy array.
A = TypeVar("A", pl.Series, npt.NDArray[Any])


class Names:
    """Texts by id. It grows as tables are read; ids never change.

    It grows file by file: what is known of it is added to, never made anew, so that the time is linear in files.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._id: dict[str, int] = {}
        self._series = pl.Series("name", [], dtype=pl.String)
        self._judged: dict[Hashable, Any] = {}

    def add(self, texts: pl.Series) -> npt.NDArray[np.uint32] | None:
        """Ids of `texts`; None where they are 0, 1, 2 …, so that nothing need be renumbered."""
        ids = np.fromiter((self._add(t) for t in texts.to_list()), dtype=np.uint32, count=len(texts))
        return None if np.array_equal(ids, np.arange(len(ids))) else ids

    def _add(self, text: str) -> int:
        id_ = self._id.get(text)
        if id_ is None:
            id_ = self._id[text] = len(self._texts)
            self._texts.append(text)
        return id_

    def series(self) -> pl.Series:
        """All texts, by id."""
        series = self._series
        if len(series) < len(self._texts):
            new = pl.Series("name", self._texts[len(series) :], dtype=pl.String)
            self._series = pl.concat([series, new], rechunk=True) if len(series) else new
        return self._series

    def judged(self, key: Hashable, function: Callable[[pl.Series], A]) -> A:
        """`function` of all texts, which must judge each by itself: asked only of those that came since."""
        texts, judged = self.series(), self._judged.get(key)
        if judged is None or len(judged) < len(texts):
            new = function(texts if judged is None else texts[len(judged) :])
            judged = new if judged is None else _joined(judged, new)
            self._judged[key] = judged
        every: A = judged
        return every


def _joined(first: A, second: A) -> A:
    if isinstance(first, pl.Series):
        return pl.concat([first, second], rechunk=True)
    return np.concatenate([first, second])

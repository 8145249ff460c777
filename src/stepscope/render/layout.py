"""Columns of text that fit a width: headers break at underscores, long texts are cut in the middle, numbers never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

ELLIPSIS = "…"
#: A cut text keeps at least so many cells.
_LEAST_TEXT = 12


@dataclass
class Column:
    """One column of the printed table."""

    title: str
    cells: list[str]
    number: bool
    empty: bool = False
    broken: bool = field(default=False, init=False)
    limit: int | None = field(default=None, init=False)

    def title_lines(self) -> list[str]:
        return _break(self.title) if self.broken else [self.title]

    def content(self) -> int:
        """Cells that the widest value needs, after cutting."""
        widest = max(map(width, self.cells), default=0)
        return widest if self.limit is None else min(widest, self.limit)

    def width(self) -> int:
        return max(self.content(), *(width(t) for t in self.title_lines()))


def width(text: str) -> int:
    """Terminal cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


def fit(columns: Sequence[Column], budget: int) -> int:
    """Make the table as narrow as `budget` where that can be done; returns the gap between columns."""
    for column in sorted(columns, key=_gain, reverse=True):
        if _total(columns, 2) <= budget or _gain(column) <= 0:
            break
        column.broken = True
    over = _total(columns, 2) - budget
    if over > 0:
        _cut_texts(columns, over)
    return 2 if _total(columns, 2) <= budget else 1


def lines(columns: Sequence[Column], gap: int) -> tuple[list[str], list[str]]:
    """Header lines and body lines, padded: numbers to the right, texts to the left."""
    widths = [c.width() for c in columns]
    tall = max((len(c.title_lines()) for c in columns), default=0)
    titles = [[""] * (tall - len(c.title_lines())) + c.title_lines() for c in columns]
    head = [_row([t[i] for t in titles], widths, columns, gap) for i in range(tall)]
    head.append((" " * gap).join("─" * w for w in widths))
    cut = [[c if w >= width(c) else shorten(c, w) for c in col.cells] for col, w in zip(columns, widths, strict=True)]
    return head, [_row(cells, widths, columns, gap) for cells in zip(*cut, strict=True)]


def shorten(text: str, most: int) -> str:
    """`text` in `most` cells: what begins and ends a label tells it from its neighbours, so the middle goes."""
    if width(text) <= most:
        return text
    if most <= 1:
        return ELLIPSIS[:most]
    tail = (most - 1) // 2
    head = most - 1 - tail
    start, end = _take(text, head), _take(text[::-1], tail)[::-1]
    return start + ELLIPSIS + end


def _take(text: str, most: int) -> str:
    """As much of the beginning as fits."""
    if text.isascii():
        return text[:most]
    taken, used = "", 0
    for char in text:
        used += cell_len(char)
        if used > most:
            break
        taken += char
    return taken


def _total(columns: Sequence[Column], gap: int) -> int:
    return sum(c.width() for c in columns) + gap * max(0, len(columns) - 1)


def _gain(column: Column) -> int:
    """Cells that breaking the header would save."""
    if column.broken:
        return 0
    pieces = max(map(width, _break(column.title)))
    return column.width() - max(column.content(), pieces)


def _break(title: str) -> list[str]:
    """`exposed_wall` as `exposed_` over `wall`; names of more parts in at most two lines of like length."""
    parts = title.split("_")
    if len(parts) == 1:
        return [title]
    splits = [["_".join(parts[:i]) + "_", "_".join(parts[i:])] for i in range(1, len(parts))]
    return min(splits, key=lambda lines: max(map(len, lines)))


def _cut_texts(columns: Sequence[Column], over: int) -> None:
    """Take `over` cells from the texts, always from the widest."""
    texts = [c for c in columns if not c.number]
    for _ in range(over):
        widest = max(texts, key=Column.width, default=None)
        if widest is None or widest.width() <= _LEAST_TEXT:
            return
        widest.limit = widest.width() - 1
        if widest.width() > widest.limit:  # the header holds it
            texts.remove(widest)


def _row(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column], gap: int) -> str:
    padded = [
        " " * (w - width(cell)) + cell if column.number else cell + " " * (w - width(cell))
        for cell, w, column in zip(cells, widths, columns, strict=True)
    ]
    return (" " * gap).join(padded).rstrip()

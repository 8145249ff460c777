"""Columns of text that fit a width: headers break at underscores, long texts are cut in the middle, numbers never."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from rich.cells import cell_len

from stepscope.model.range_names import bare_name

ELLIPSIS = "…"
#: A cut text keeps at least so many cells; fewer only where the table would not fit otherwise.
LEAST_TEXT, _LEAST_OF_ALL = 12, 8
#: Texts of at most so many cells are not cut: rows are told apart by them, and a number fewer tells more.
_SHORT_TEXT = 16
_ROOMY_TEXT = 24
_NUMBER_AND_UNIT = re.compile(r"(\d) ((?:[nµm]?s|[KMGT]?i?B|GB/s|[MGTPE]FLOP(?:/s)?)\b|%)")
#: Characters of a cell at most: longer cells are not names, and measuring them is slow.
_LONGEST = 4096


@dataclass
class Column:
    """One column of the printed table."""

    title: str
    cells: list[str]
    number: bool
    #: Cells that a text needs at most where it may be wider: whoever shows it wraps it, and nothing is cut.
    room: int | None = None
    #: Sentences: they go on in the next line, and nothing is cut.
    prose: bool = False
    full: list[str] = field(init=False)
    broken: bool = field(default=False, init=False)
    limit: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.cells = self.full = [_bounded(cell) for cell in self.cells]

    def reset(self) -> None:
        """As if nothing had been cut."""
        self.broken, self.limit = False, None
        self.rename(self.full)

    def title_lines(self) -> list[str]:
        return _break(self.title) if self.broken else [self.title]

    @cached_property
    def widest(self) -> int:
        """Cells that the widest value needs."""
        return max(map(width, self.cells), default=0)

    @property
    def can_be_cut(self) -> bool:
        return not (self.number or self.prose) and self.room is None

    @property
    def can_be_narrower(self) -> bool:
        return self.can_be_cut or (self.prose and self.room is None)

    @property
    def constant(self) -> bool:
        """The same on several rows."""
        return len(self.cells) > 1 and all(c == self.cells[0] for c in self.cells)

    @property
    def measured(self) -> bool:
        """Values with a unit: `gpu` of a range is time, `gpu` of a rank is a number of it."""
        return self.number and any(_NUMBER_AND_UNIT.search(cell) for cell in self.full)

    def rename(self, cells: list[str]) -> None:
        """Show other texts instead."""
        self.cells = cells
        self.__dict__.pop("widest", None)

    def content(self) -> int:
        """The same after cutting."""
        if self.room is not None:
            return min(self.widest, self.room)
        return self.widest if self.limit is None or self.number else min(self.widest, self.limit)

    def shown(self) -> list[list[str]]:
        """The lines of every cell, in the room that the column got."""
        if self.prose and self.room is None:
            return [wrapped(cell, self.width(), indent=0, whole=False) for cell in self.cells]
        return [[cell] for cell in (self.cells if self.room is not None else cut(self.cells, self.width()))]

    def width(self) -> int:
        return max(self.content(), *(width(t) for t in self.title_lines()))


def width(text: str) -> int:
    """Terminal cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST // 2] + ELLIPSIS + text[-_LONGEST // 2 :]


def fit(columns: Sequence[Column], budget: int) -> int:
    """Make the table as narrow as `budget` where that can be done; returns the gap between columns."""
    for column in columns:
        column.reset()
    if total(columns, 2) <= budget:
        return 2
    for column in columns:
        column.broken = _gain(column) > 0
        if column.can_be_cut and total(columns, 2) > budget:
            column.rename([bare_name(c) for c in column.cells])
    for gap, least in ((2, _ROOMY_TEXT), (1, LEAST_TEXT), (1, _LEAST_OF_ALL)):
        for column in columns:
            column.limit = budget  # no text keeps more: the steps down from there are few
        _cut_texts(columns, total(columns, gap) - budget, least)
        if total(columns, gap) <= budget:
            return gap
    for column in columns:  # too wide whatever is cut: then readable
        column.limit = _ROOMY_TEXT
    return 1


def lines(columns: Sequence[Column], gap: int) -> tuple[list[str], list[list[str]]]:
    """Header lines and the lines of every row, padded: numbers to the right, texts to the left."""
    widths = [c.width() for c in columns]
    tall = max((len(c.title_lines()) for c in columns), default=0)
    titles = [[""] * (tall - len(c.title_lines())) + c.title_lines() for c in columns]
    head = [_row([t[i] for t in titles], widths, columns, gap) for i in range(tall)]
    head.append((" " * gap).join("─" * w for w in widths))
    rows = zip(*(column.shown() for column in columns), strict=True)
    return head, [[_row(cells, widths, columns, gap) for cells in zip_longest(*row, fillvalue="")] for row in rows]


def cut(cells: list[str], most: int) -> list[str]:
    """The cells in `most` each: without their middle, or else without what keeps them apart the least."""
    if all(width(c) <= most for c in cells):
        return cells
    same = len(os.path.commonprefix(cells))  # noqa: RUF071 (texts, not paths)
    tries = [[shorten(c, most, head) for c in cells] for head in (most // 2, most - 1, 0)]
    tries.append([shorten(ELLIPSIS + c[max(0, same - most // 2) :], most, most - 1) for c in cells])
    return max(tries, key=lambda cut: len(set(cut)))  # the first of the best


def shorten(text: str, most: int, head: int) -> str:
    """`text` in `most` cells: `head` of its beginning, an ellipsis, and as much of its end as there is room for."""
    if width(text) <= most:
        return text
    end = _take(text[::-1], most - 1 - head)[::-1]
    return _take(text, head) + ELLIPSIS + end


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


def total(columns: Sequence[Column], gap: int) -> int:
    """Width of the table."""
    return sum(c.width() for c in columns) + gap * max(0, len(columns) - 1)


def _gain(column: Column) -> int:
    """Cells that breaking the header would save."""
    if column.broken:
        return 0
    pieces = max(map(width, _break(column.title)))
    return column.width() - max(column.content(), pieces)


def _break(title: str) -> list[str]:
    """`exposed_wall` as `exposed_` over `wall`; names of more parts in at most two lines of like length."""
    parts = re.findall(r"[^_ ]*[_ ]?", title)[:-1]
    if len(parts) < 2:
        return [title]
    splits = [["".join(parts[:i]).rstrip(), "".join(parts[i:])] for i in range(1, len(parts))]
    return min(splits, key=lambda lines: max(map(len, lines)))


def _cut_texts(columns: Sequence[Column], over: int, least: int) -> None:
    """Take `over` cells from the texts, always from the widest, down to `least`."""
    texts = [c for c in columns if c.can_be_narrower and c.widest > _SHORT_TEXT]
    for _ in range(over):
        texts = [c for c in texts if c.width() > (_ROOMY_TEXT if c.prose else least)]
        widest = max(texts, key=Column.width, default=None)
        if widest is None:
            return
        widest.limit = widest.width() - 1
        if widest.width() > widest.limit:  # its header is as wide
            texts.remove(widest)


def _row(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column], gap: int) -> str:
    padded = [
        " " * (w - width(cell)) + cell if column.number else cell + " " * (w - width(cell))
        for cell, w, column in zip(cells, widths, columns, strict=True)
    ]
    return (" " * gap).join(padded).rstrip()


def wrapped(text: str, width: int, indent: int = 2, *, whole: bool = True) -> list[str]:
    """Lines of `width`; a number and its unit stay together, and words are `whole` unless told otherwise."""
    joined = _NUMBER_AND_UNIT.sub("\\1\u00a0\\2", text)
    lines = textwrap.wrap(
        joined, max(width, 20), subsequent_indent=" " * indent, break_long_words=not whole, break_on_hyphens=False
    )
    return [line.replace("\u00a0", " ") for line in lines] or [""]

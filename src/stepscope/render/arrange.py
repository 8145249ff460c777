"""What a table that is too wide gives up, in turn: first what costs the reader least."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.model.units import MISSING
from stepscope.render import layout
from stepscope.render.layout import Column

_UNDER = "  └ "
#: What a reader misses least, in turn; then the last columns, but for the first so many.
_LESSER = ("pid", "device", "gpu", "tid", "stdev", "min", "q1", "q3", "variants", "calls", "host")
_MOST_TELLING = 4
#: What the other columns are read for: it goes last, wherever it stands.
_CONCLUSIONS = ("verdict", "status")
#: Two ends of an interval: one says nothing without the other.
_INTERVALS = (("low", "high"),)
#: Sentences of more lines than that are easier to read below their row, in all of its width.
_TALLEST = 4
#: The width of a plain terminal: no wider table shows less of a name.
_NARROW = 80


@dataclass(frozen=True)
class Arranged:
    """The columns that fit, each with the room that it got; the text that has none beside them; what to say below."""

    columns: list[Column]
    gap: int
    under: Column | None
    below: list[str]


def arrange(columns: list[Column], width: int, more: str = "a wider terminal, ") -> Arranged:
    """Columns without any value are said below; where that makes room, so are those that are the same on every row, and
    those that are left out.

    Where texts would have to be cut beyond recognition even so, the longest of them is to stand elsewhere: also where a
    narrower table would show more of it. `more` is what shows what is left out, other than the formats that have all.
    """
    if width <= _NARROW:
        return _arranged(columns, width, more)
    name = max((c for c in columns if c.can_be_cut), key=_longest, default=None)
    if name is None:
        return _arranged(columns, width, more)
    least = _room(_arranged(columns, _NARROW, more), name, _NARROW)
    for under in (None, *(c for c in columns if c.prose), name):
        arranged = _arranged(columns, width, more, under)
        if _room(arranged, name, width) >= min(least, _longest(name)):
            break
    return arranged


def _longest(column: Column) -> int:
    return max(map(layout.width, column.full), default=0)


def _room(arranged: Arranged, column: Column, width: int) -> int:
    """How much of a text a table shows."""
    if arranged.under is column:
        return width - len(_UNDER)
    return column.width() if column in arranged.columns else 0


def _arranged(columns: list[Column], width: int, more: str, under: Column | None = None) -> Arranged:
    below: list[str] = []
    columns, empty = _without_empty(columns)
    gap = layout.fit([c for c in columns if c is not under], width)
    if gap == 1 or (under is not None and under.prose):
        columns, moved = _without_constants(columns, width)
        if moved:
            below.append(f"in every row: {', '.join(f'{c.title} {c.full[0]}' for c in moved)}")
        gap = layout.fit(columns, width)
    if empty:
        below.append(f"without a value: {', '.join(c.title for c in empty)}")
    if gap == 1:
        columns, twins = _without_twins(columns)
        below += [f"{', '.join(again)}: same as {title} in every row" for title, again in twins.items()]
        gap = layout.fit(columns, width)
    if under is None:
        under = _tall(columns) or (_squeezed(columns, width) if gap == 1 else None)
    columns, dropped = _without_lesser(columns, under, width)
    if dropped:
        below.append(f"not shown: {', '.join(dropped)} ({more}--format csv or json)")
        gap = layout.fit(columns, width)
    if under is not None:
        columns = [c for c in columns if c is not under]
        gap = layout.fit(columns, width)
    return Arranged(columns, gap, under, below)


def lines(arranged: Arranged, width: int) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table in plain text; the text that has no room beside the others under its row, if any."""
    head, body = layout.lines(arranged.columns, arranged.gap)
    if arranged.under is None:
        return head, body
    texts = [_under(text, width, arranged.under.prose) for text in arranged.under.full]
    paired = [row + text for row, text in zip(body, texts, strict=True)]
    return [*head[:-1], _UNDER + arranged.under.title, head[-1]], paired


def _under(text: str, width: int, prose: bool) -> list[str]:
    """A text below its row."""
    if text == MISSING:
        return []
    if prose:
        return layout.wrapped(_UNDER + text, width, indent=len(_UNDER))
    room = width - len(_UNDER)
    return [_UNDER + layout.shorten(text, room, room // 2)]


def _without_empty(columns: list[Column]) -> tuple[list[Column], list[Column]]:
    """Columns with some value, and those without any; a table keeps at least one."""
    empty = [c for c in columns if c.full and all(cell == MISSING for cell in c.full)]
    return ([c for c in columns if c not in empty], empty) if len(empty) < len(columns) else (columns, [])


def _without_constants(columns: list[Column], width: int) -> tuple[list[Column], list[Column]]:
    """Columns without those that are the same on every row, the widest first, until the rest fits; and those."""
    moved: list[Column] = []
    for column in sorted((c for c in columns if c.constant), key=lambda c: c.widest, reverse=True):
        moved.append(column)
        columns = [c for c in columns if c is not column]
        if layout.fit(columns, width) == 2:
            break
    return columns, moved


def _without_twins(columns: list[Column]) -> tuple[list[Column], dict[str, list[str]]]:
    """Columns of numbers that repeat an earlier one on every row (a mean of single values) are left out, and named."""
    seen: dict[tuple[str, ...], str] = {}
    twins: dict[str, list[str]] = {}
    kept = []
    for column in columns:
        cells = tuple(column.full)
        if column.number and len(cells) > 1 and cells in seen:
            twins.setdefault(seen[cells], []).append(column.title)
            continue
        if column.number:
            seen[cells] = column.title
        kept.append(column)
    return kept, twins


def _without_lesser(columns: list[Column], under: Column | None, width: int) -> tuple[list[Column], list[str]]:
    """Columns without those that matter least, until the numbers fit; and the titles of those, in their order."""
    kept = list(columns)
    order = [c for title in _LESSER for c in columns if c.title == title and not c.measured]
    order += [c for c in reversed(columns[_MOST_TELLING:]) if c not in order and c.title not in _CONCLUSIONS]
    order += [c for c in columns[_MOST_TELLING:] if c.title in _CONCLUSIONS]
    for column in order:
        beside = [c for c in kept if c is not under]
        layout.fit(beside, width)
        if layout.total(beside, 1) <= width:
            break
        ends = next((pair for pair in _INTERVALS if column.title in pair), (column.title,))
        kept = [c for c in kept if c is under or (c is not column and c.title not in ends)]
    layout.fit(kept, width)
    return kept, [c.title for c in columns if c not in kept]


def _tall(columns: list[Column]) -> Column | None:
    """Sentences that would be a tower beside short values."""
    return next((c for c in columns if c.prose and any(len(cell) > _TALLEST for cell in c.shown())), None)


def _recognizable(column: Column) -> int:
    """Cells by which a cut name is still known: some of a short one, half of a kernel's."""
    return min(column.widest, max(layout.LEAST_TEXT, _longest(column) // 2))


def _squeezed(columns: list[Column], width: int) -> Column | None:
    """Sentences, or else the longest text, if the table is still too wide or a text was cut beyond recognition."""
    texts = [c for c in columns if c.can_be_narrower]
    tight = any(c.can_be_cut and c.limit is not None and c.limit < _recognizable(c) for c in texts)
    if len(columns) < 2 or not (tight or layout.total(columns, 1) > width):
        return None
    longest = max(texts, key=lambda c: (c.prose, _longest(c)), default=None)
    return longest if longest is not None and longest.widest > layout.LEAST_TEXT else None

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


@dataclass(frozen=True)
class Arranged:
    """The columns that fit, each with the room that it got; the text that has none beside them; what to say below."""

    columns: list[Column]
    gap: int
    under: Column | None
    below: list[str]


def arrange(columns: list[Column], width: int, more: str = "a wider terminal, ") -> Arranged:
    """Columns that are the same on every row are said below, if that makes room; so are those that are left out.

    Where texts would have to be cut beyond recognition even so, the longest of them is to stand elsewhere. `more` is
    what shows what is left out, other than the formats that have all.
    """
    below: list[str] = []
    gap = layout.fit(columns, width)
    if gap == 1:
        columns, moved = _without_constants(columns, width)
        if told := [f"{c.title} {c.full[0]}" for c in moved if c.full[0] != MISSING]:
            below.append(f"in every row: {', '.join(told)}")
        if empty := [c.title for c in moved if c.full[0] == MISSING]:
            below.append(f"without a value: {', '.join(empty)}")
        gap = layout.fit(columns, width)
    if gap == 1:
        columns, twins = _without_twins(columns)
        below += [f"{', '.join(again)}: as {title} in every row" for title, again in twins.items()]
        gap = layout.fit(columns, width)
    under = _squeezed(columns, width) if gap == 1 else None
    columns, dropped = _without_lesser(columns, under, width)
    if dropped:
        below.append(f"not shown: {', '.join(dropped)} ({more}--format csv or json)")
        gap = layout.fit(columns, width)
    if under is not None:
        columns = [c for c in columns if c is not under]
        gap = layout.fit(columns, width)
    return Arranged(columns, gap, under, below)


def lines(arranged: Arranged, width: int) -> tuple[list[str], list[str]]:
    """Head and body of a table in plain text; the text that has no room beside the others under each row."""
    head, body = layout.lines(arranged.columns, arranged.gap)
    if arranged.under is None:
        return head, body
    room = width - len(_UNDER)
    texts = [_UNDER + layout.shorten(text, room, room // 2) for text in arranged.under.full]
    paired = [line for pair in zip(body, texts, strict=True) for line in pair]
    return [*head[:-1], _UNDER + arranged.under.title, head[-1]], paired


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
    order = [c for title in _LESSER for c in columns if c.title == title]
    order += [c for c in reversed(columns[_MOST_TELLING:]) if c not in order]
    for column in order:
        beside = [c for c in kept if c is not under]
        layout.fit(beside, width)
        if layout.total(beside, 1) <= width:
            break
        if column is not under:
            kept.remove(column)
    layout.fit(kept, width)
    return kept, [c.title for c in columns if c not in kept]


def _squeezed(columns: list[Column], width: int) -> Column | None:
    """The longest text, if the table is still too wide or a text was cut to almost nothing."""
    texts = [c for c in columns if c.can_be_cut]
    tight = any(c.limit is not None and c.limit < layout.LEAST_TEXT and c.widest > c.limit for c in texts)
    if len(columns) < 2 or not (tight or layout.total(columns, 1) > width):
        return None
    longest = max(texts, key=lambda c: max(map(layout.width, c.full), default=0), default=None)
    return longest if longest is not None and longest.widest > layout.LEAST_TEXT else None

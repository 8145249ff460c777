"""What a table that is too wide gives up, in turn: first what costs the reader least."""

from __future__ import annotations

from stepscope.render import layout
from stepscope.render.layout import Column

_UNDER = "  └ "
#: What a reader misses least, in turn; then the last columns, but for the first so many.
_LESSER = ("pid", "device", "gpu", "tid", "stdev", "min", "q1", "q3", "variants", "calls", "host")
_MOST_TELLING = 4


def arrange(columns: list[Column], width: int) -> tuple[list[str], list[str], list[str]]:
    """Head, body, and what to say below: columns that are the same on every row, moved there if that makes room.

    Where texts would have to be cut beyond recognition even so, the longest of them gets a line of its own under each
    row.
    """
    below: list[str] = []
    gap = layout.fit(columns, width)
    if gap == 1:
        columns, moved = _without_constants(columns, width)
        if moved:
            below.append("in every row: " + ", ".join(f"{c.title} {c.full[0]}" for c in moved))
        gap = layout.fit(columns, width)
    if gap == 1:
        columns, twins = _without_twins(columns)
        below += [f"{', '.join(again)}: as {title} in every row" for title, again in twins.items()]
        gap = layout.fit(columns, width)
    under = _squeezed(columns, width) if gap == 1 else None
    columns, dropped = _without_lesser(columns, under, width)
    if dropped:
        below.append(f"not shown: {', '.join(dropped)} (a wider terminal, --format csv or json)")
        gap = layout.fit(columns, width)
    if under is None:
        return *layout.lines(columns, gap), below
    columns = [c for c in columns if c is not under]
    head, body = layout.lines(columns, layout.fit(columns, width))
    room = width - len(_UNDER)
    texts = [_UNDER + layout.shorten(text, room, room // 2) for text in under.full]
    paired = [line for pair in zip(body, texts, strict=True) for line in pair]
    return [*head[:-1], _UNDER + under.title, head[-1]], paired, below


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
    texts = [c for c in columns if not c.number]
    tight = any(c.limit is not None and c.limit < layout.LEAST_TEXT and c.widest > c.limit for c in texts)
    if len(columns) < 2 or not (tight or layout.total(columns, 1) > width):
        return None
    longest = max(texts, key=lambda c: max(map(layout.width, c.full), default=0), default=None)
    return longest if longest is not None and longest.widest > layout.LEAST_TEXT else None

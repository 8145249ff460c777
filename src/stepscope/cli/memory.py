"""`report --memory`, which is the budget or names snapshots."""

from __future__ import annotations

from stepscope.files import budget


def snapshots_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """`report --memory` takes allocator snapshots, too: what reads as a size is the budget, the rest is files."""
    sizes = [text for text in given if budget.size_of(text) is not None]
    budget.keep(sizes[-1] if sizes else None)
    return tuple(text for text in given if text not in sizes)

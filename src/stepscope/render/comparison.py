"""A comparison on a terminal: columns that the others tell are left out where there are too many for its width."""

from __future__ import annotations

from dataclasses import replace

from stepscope.model.result import Result

#: By a column that only this view has: what its table leaves to JSON and CSV. The verdict says what an interval does.
_HIDDEN: dict[str, tuple[str, ...]] = {
    "compute_diff_ns": ("change_pct", "low_ns", "high_ns"),
    "name": ("family", "low_ns", "high_ns"),
    "why": ("why",),  # the notes have it in full
}


def narrowed(result: Result) -> Result:
    """The result with the columns that fit."""
    hidden = next((found for mark, found in _HIDDEN.items() if mark in result.rows.columns), ())
    return replace(result, rows=result.rows.drop(hidden))

"""A comparison on a terminal: columns that the others tell are left out where there are too many for its width."""

from __future__ import annotations

from dataclasses import replace

from stepscope.model.result import Result

#: By a column that only this view has: what its table leaves to JSON and CSV. The verdict says what an interval does.
_HIDDEN: dict[str, tuple[str, ...]] = {
    "compute_diff_ns": ("change_pct", "low_ns", "high_ns"),
    "name": ("family", "low_ns", "high_ns"),
    "why": ("limit_pct", "step_pct", "low_step_pct", "high_step_pct", "diff_ns"),  # it says them
}


#: Of medians and means, those that the verdict does not rest on; the others have all that is said of them.
_MEANS = ("base_mean_ns", "new_mean_ns", "mean_diff_ns", "mean_low_ns", "mean_high_ns")
_MEDIANS = ("base_ns", "new_ns", "diff_ns", "change_pct", "step_pct", "low_ns", "high_ns")


def narrowed(result: Result) -> Result:
    """The result with the columns that fit: medians, or means where steps are judged by those."""
    hidden = next((found for mark, found in _HIDDEN.items() if mark in result.rows.columns), ())
    by_mean = result.command == "compare" and result.summary.get("step", {}).get("judged_by") == "mean"
    other = _MEDIANS if by_mean else _MEANS
    return replace(result, rows=result.rows.drop([c for c in {*hidden, *other} if c in result.rows.columns]))

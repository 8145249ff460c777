"""What tables show at every width: no empty columns, names that do not shrink, no table twice, no empty values."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.model.result import Result
from stepscope.render.table import to_text

NAMES = ["void at::native::vectorized_elementwise_kernel_of_a_long_name_" + end for end in ("forward", "backward")]


def table(**columns: list[object]) -> Result:
    return Result(pl.DataFrame(columns))


@pytest.mark.parametrize("width", [60, 80, 100, 160, 400])
def test_columns_without_any_value_are_named_below(width: int) -> None:
    text = to_text(table(rank=[0, 1], total_ns=[5, 6], roof_pct=[None, None], bound=[None, None]), width)
    head, below = text.strip().split("\n")[0], text.strip().split("\n")[-1]
    assert below == "without a value: roof %, bound"
    assert "roof" not in head and head.split() == ["rank", "total"]


def test_a_table_of_nothing_keeps_its_columns() -> None:
    assert to_text(table(bound=[None]), 80).split() == ["bound", "─────", "-"]


def longest_piece(text: str) -> int:
    """Of the first name: how many of its letters stand together on a line."""
    return max(n for line in text.split("\n") for n in range(len(NAMES[0]) + 1) if NAMES[0][-n:] in line)


@pytest.mark.parametrize("figures", [3, 6, 9, 14])
def test_a_wider_table_shows_no_less_of_a_name(figures: int) -> None:
    numbers = {f"figure_number_{k}_ns": [123_456 + k, 7_654_321] for k in range(figures)}
    shown = [longest_piece(to_text(table(name=NAMES, **numbers), width)) for width in (80, 100, 120, 160, 240)]
    assert all(wide >= shown[0] for wide in shown), shown


def test_a_summary_that_repeats_the_rows_is_left_out() -> None:
    rows = pl.DataFrame({"rank": [3, 1], "n": [8, 2], "total_ns": [66, 11]})
    same = {"3": {"total_ns": 66}, "1": {"total_ns": 11}}
    other = {"3": {"total_ns": 66}, "1": {"total_ns": 12}}
    assert "by_rank" not in to_text(Result(rows, summary={"by_rank": same}))
    assert "by_rank" in to_text(Result(rows, summary={"by_rank": other}))
    assert "by_kind" in to_text(Result(rows, summary={"by_kind": {"comm": {"total_ns": 66}, "copy": {"total_ns": 11}}}))


def test_values_that_are_empty_are_not_named() -> None:
    text = to_text(Result(pl.DataFrame({"rank": [0]}), summary={"n": 4, "all_to_all": {}, "late": [], "why": ""}))
    assert "n 4\n" in text and "all_to_all" not in text and "late" not in text and "·" not in text

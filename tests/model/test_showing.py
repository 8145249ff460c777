"""Rows in an order, the most important, a page of them: and never a row left out in silence."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.api.analysing import Showing
from stepscope.errors import BadInput
from stepscope.model.result import Result
from stepscope.render import render


def result(count: int = 5, ranked_by: str | None = "ns") -> Result:
    """Rows 0 to `count`, of which the last matters most."""
    table = pl.DataFrame({"name": [f"k{i}" for i in range(count)], "ns": [10 * i for i in range(count)]})
    return Result(table, command="kernels", ranked_by=ranked_by)


def names(shown: Result) -> list[str]:
    return shown.rows["name"].to_list()


def said(shown: Result) -> list[str]:
    return [str(n) for n in shown.notes if n.code == "rows-not-shown"]


@given(count=st.integers(0, 30), limit=st.integers(1, 10), top=st.none() | st.integers(0, 12))
def test_pages_together_are_all_rows(count: int, limit: int, top: int | None):
    """Following the notes from page to page gives every row once, in order, and ends."""
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = Showing(sort="ns", top=top, limit=limit, offset=offset).of(result(count))
        found += names(page)
        told = [text.partition("--offset ")[2].split()[0] for text in said(page) if "--offset" in text]
        offset = int(told[0].replace(",", "")) if told else None
    wanted = [f"k{i}" for i in reversed(range(count))]
    assert found == (wanted[:top] if top else wanted)


def test_which_rows_a_page_has_is_said():
    assert said(Showing(limit=2).of(result())) == ["rows 1-2 of 5; --offset 2 for the next"]
    assert said(Showing(limit=2, offset=4).of(result())) == ["rows 5-5 of 5"]
    assert said(Showing(limit=2, offset=9).of(result())) == ["rows from 10 on: none, there are 5"]
    assert said(Showing(offset=3).of(result())) == ["rows 4-5 of 5"]
    assert (
        said(Showing(limit=5).of(result())) == said(Showing(limit=0).of(result())) == said(Showing().of(result())) == []
    )
    assert said(Showing(top=2).of(result())) == ["rows that matter most, 2 of 5; --top 0 for all"]


def test_order():
    assert names(Showing(sort="ns").of(result(3))) == ["k2", "k1", "k0"]
    assert (
        names(Showing(sort="ns:asc").of(result(3))) == names(Showing(sort="name").of(result(3))) == ["k0", "k1", "k2"]
    )
    assert names(Showing(sort="name:desc", top=1).of(result(3))) == ["k2"]
    assert names(Showing(sort="ns:asc", top=2).of(result(3))) == ["k0", "k1"]
    unknown = Result(pl.DataFrame({"a": [1, None, 3]}))
    assert Showing(sort="a").of(unknown).rows["a"].to_list() == [3, 1, None]
    assert Showing(sort="a:asc").of(unknown).rows["a"].to_list() == [1, 3, None]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sort": "nowhere"}, "no column 'nowhere'; there are name, ns"),
        ({"sort": "ns:up"}, "'up' is not a direction"),
        ({"top": -1}, "--top -1"),
        ({"limit": -1}, "--limit -1"),
        ({"offset": -1}, "--offset -1"),
    ],
)
def test_what_cannot_be_shown_is_refused(wrong: dict[str, object], why: str):
    with pytest.raises(BadInput, match=why):
        Showing(**wrong).of(result())  # type: ignore[arg-type]


def test_every_format_says_it():
    """Once: tables and Markdown under the rows, JSON among the notes with the number of all rows."""
    page = Showing(sort="ns", limit=2).of(result(20))
    for format in ("table", "md"):
        text = render(page, format).decode()
        assert text.count("rows 1-2 of 20; --offset 2 for the next") == 1
        assert "k19" in text and "k17" not in text
    answer = json.loads(render(page, "json"))
    assert (len(answer["rows"]), answer["rows_total"]) == (2, 20)
    assert answer["notes"] == ["rows 1-2 of 20; --offset 2 for the next"]


def test_a_page_of_a_long_list_is_shown_whole():
    """A table shows ten rows of a long list, unless the user asked for a page of it."""
    assert len(Showing(limit=40).of(result(100)).for_people().rows) == 40
    assert len(Showing(sort="ns").of(result(100)).for_people().rows) == 10

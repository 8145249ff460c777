"""Sorting by radix groups as hashing does, and floats are spelled as Python spells them."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stepscope.nsys.reports.grouping import grouped
from stepscope.nsys.reports.spec import Column
from stepscope.nsys.reports.statistics import moments
from stepscope.nsys.reports.units import Units, texts

_NARROW = st.integers(-3, 3)
_WIDE = st.integers(-(2**31), 2**31 - 1)
_ROWS = st.lists(st.tuples(_NARROW, st.one_of(_NARROW, _WIDE), _WIDE, st.integers(0, 10**12)), max_size=40)


@given(_ROWS, st.sampled_from([("a",), ("a", "b"), ("b", "c"), ("a", "b", "c"), ("c", "a")]))
def test_groups_are_those_of_polars(rows, keys):
    frame = pl.DataFrame(rows, schema={"a": pl.Int8, "b": pl.Int64, "c": pl.Int32, "value": pl.Int64}, orient="row")
    expected = frame.group_by(keys).agg(moments("value")).sort(keys)
    found = grouped(frame, keys, moments("value")).sort(keys).select(expected.columns)
    # Beside 10^12 a float's last place is 10^-4: that much of a deviation depends on the order of adding up.
    assert_frame_equal(found, expected, rel_tol=1e-12, abs_tol=1e-3)


@given(st.lists(st.tuples(st.one_of(st.none(), _NARROW), st.sampled_from(["x", "y"]), _NARROW), max_size=20))
def test_nulls_and_texts_are_keys_too(rows):
    frame = pl.DataFrame(rows, schema={"a": pl.Int8, "b": pl.String, "value": pl.Int64}, orient="row")
    expected = frame.group_by("a", "b").agg(moments("value")).sort("a", "b")
    assert_frame_equal(grouped(frame, ["a", "b"], moments("value")).sort("a", "b"), expected, rel_tol=1e-12)


#: No figure is a negative zero: adding nothing makes it one like others.
FLOATS = st.floats(allow_nan=False).map(lambda v: v + 0.0)


@given(st.lists(st.one_of(st.none(), FLOATS, st.integers(0, 10**14).map(lambda n: n / 10))))
def test_floats_are_spelled_as_python_does(values):
    column = Column("Avg", "dur_ns")
    found = texts(pl.Series(values, dtype=pl.Float64), column, Units()).to_list()
    assert found == [None if v is None else repr(v) for v in values]

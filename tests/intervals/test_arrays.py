"""Ids numbered by counting, rows put in order: against NumPy's sorts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.intervals.arrays import in_order, numbered, places

CLOSE = st.lists(st.integers(-9, 9), max_size=40)
FAR = st.lists(st.integers(-(1 << 62), 1 << 62), max_size=40)


@given(st.one_of(CLOSE, FAR))
def test_numbered_is_unique_with_its_inverse(values):
    array = np.array(values, dtype=np.int64)
    distinct, of = numbered(array)
    expected, inverse = np.unique(array, return_inverse=True)
    assert distinct.tolist() == expected.tolist()
    assert of.tolist() == inverse.reshape(-1).tolist()


def test_small_types_do_not_overflow():
    distinct, of = numbered(np.array([-128, 127, -128], dtype=np.int8))
    assert (distinct.tolist(), of.tolist()) == ([-128, 127], [0, 1, 0])


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9), st.integers(0, 2)), max_size=40), st.booleans())
def test_in_order_is_a_lexsort(rows, in_time):
    group, time, rest = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)) if rows else ([],) * 3
    group, time, rest = (np.asarray(column, dtype=np.int64) for column in (group, time, rest))
    time = np.sort(time) if in_time else time
    for kind in (np.int16, np.int32, np.int64):
        assert in_order(group.astype(kind), time).tolist() == np.lexsort((time, group)).tolist()
        assert in_order(group.astype(kind), time, rest).tolist() == np.lexsort((rest, time, group)).tolist()


@given(st.lists(st.integers(-9, 9), max_size=9), st.lists(st.integers(-12, 12), max_size=40), st.booleans())
def test_places_are_those_of_searchsorted(bounds, at, in_time):
    bounds, at = np.sort(np.array(bounds, dtype=np.int64)), np.array(at, dtype=np.int64)
    at = np.sort(at) if in_time else at
    assert places(bounds, at).tolist() == np.searchsorted(bounds, at, side="right").tolist()


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1, max_size=40))
def test_in_order_of_times_that_no_number_holds_together_with_their_group(rows):
    group, time = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    assert in_order(group, time).tolist() == np.lexsort((time, group)).tolist()

"""Ids numbered by counting, against NumPy's sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.intervals.arrays import numbered

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

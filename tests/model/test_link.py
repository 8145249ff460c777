"""Launch linking against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.link import NO_CALL, link

dense = st.integers(-2, 12)
sparse = st.integers(-(2**62), 2**62) | dense
ids = st.one_of(st.lists(dense, max_size=30), st.lists(sparse, max_size=30))


@given(ids, ids)
def test_link_is_the_first_call_of_the_same_id(ops: list[int], calls: list[int]) -> None:
    first: dict[int, int] = {}
    for row, n in enumerate(calls):
        first.setdefault(n, row)
    expected = [first.get(n, int(NO_CALL)) if n > 0 else int(NO_CALL) for n in ops]
    found = link(np.array(ops, np.int64), np.array(calls, np.int64))
    assert found.dtype == np.uint32
    assert found.tolist() == expected


@given(st.lists(sparse, min_size=1, max_size=20), st.data())
def test_the_sorted_path_agrees(calls: list[int], data: st.DataObject) -> None:
    """Ids far apart take the path without a lookup table."""
    calls = [*calls, 2**61]
    ops = data.draw(st.lists(st.sampled_from(calls) | sparse, max_size=20))
    expected = [calls.index(n) if n in calls and n > 0 else int(NO_CALL) for n in ops]
    assert link(np.array(ops, np.int64), np.array(calls, np.int64)).tolist() == expected


def test_many_ops_of_one_launch() -> None:
    assert link(np.array([7, 7, 8]), np.array([9, 7, 7])).tolist() == [1, 1, int(NO_CALL)]

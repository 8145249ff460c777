"""Launch linking against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.link import EARLY, NO_CALL, link, nearest

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


def _expected(op: int, at: int, calls: list[tuple[int, int, int]]) -> int:
    """By going through them: the latest call of the id that began before the op, records within another left out."""
    own: list[int] = []
    until = -1
    for row, (start, end, number) in enumerate(calls):
        if number == op and op > 0:
            if not own or start > until:
                own.append(row)
            until = max(until, end)
    begun = [row for row in own if calls[row][0] <= at + EARLY.ns]
    return begun[-1] if begun else own[0] if own else int(NO_CALL)


moments = st.integers(0, 40).map(lambda n: n * EARLY.ns)
records = st.lists(st.tuples(moments, st.integers(0, 6), st.integers(0, 5) | st.just(2**40)), max_size=12)


@given(records, st.lists(st.tuples(moments, st.integers(0, 5) | st.just(2**40)), max_size=8))
def test_of_calls_with_one_id_the_nearest_before_counts(
    made: list[tuple[int, int, int]], ops: list[tuple[int, int]]
) -> None:
    calls = sorted((start, start + length * EARLY.ns, number) for start, length, number in made)
    calls.sort(key=lambda call: (call[0], call[1]))
    start, end, ids = (np.array(column, np.int64) for column in (zip(*calls, strict=True) if calls else ([], [], [])))
    at, op = (np.array(column, np.int64) for column in (zip(*ops, strict=True) if ops else ([], [])))
    found, _ = nearest(link(op, ids), op, at, ids, (start, end))
    assert found.tolist() == [_expected(number, when, calls) for when, number in ops]


def test_ids_that_repeat_are_counted() -> None:
    ids, start = np.array([5, 6, 5]), np.array([0, 10, 10**9])
    launch, count = nearest(
        link(np.array([5, 5]), ids), np.array([5, 5]), np.array([100, 10**9 + 5]), ids, (start, start + 5)
    )
    assert launch.tolist() == [0, 2] and count == 1

"""Nesting against brute force over its definition: of the open intervals, the last started; of those, the shortest."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.intervals.arrays import NONE
from stepscope.model.nesting import Nesting, nearest, nest

Interval = tuple[int, int, int]  # group, start, end


@st.composite
def intervals(draw: st.DrawFn) -> list[Interval]:
    """Few instants, so that ties, touching, zero length and partial overlap are common."""
    item = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 8))
    return [(g, s, s + length) for g, s, length in draw(st.lists(item, max_size=25))]


def build(items: list[Interval]) -> Nesting:
    group, start, end = (np.array([i[k] for i in items], dtype=np.int64) for k in range(3))
    return nest(group, start, end)


def order_key(items: list[Interval], row: int) -> tuple[int, int, int]:
    """By start, longest first, then as given: who comes later in this order lies inside who comes earlier."""
    _, start, end = items[row]
    return (start, -end, row)


def brute_enclosing(items: list[Interval], group: int, at: int) -> int:
    open_rows = [r for r, (g, s, e) in enumerate(items) if g == group and s <= at < e]
    return max(open_rows, key=lambda r: order_key(items, r), default=NONE)


def brute_parent(items: list[Interval], row: int) -> int:
    group, start, _ = items[row]
    before = [
        r
        for r, (g, s, e) in enumerate(items)
        if g == group and s <= start < e and order_key(items, r) < order_key(items, row)
    ]
    return max(before, key=lambda r: order_key(items, r), default=NONE)


@given(intervals())
def test_parent(items: list[Interval]) -> None:
    assert build(items).parent.tolist() == [brute_parent(items, r) for r in range(len(items))]


@given(intervals())
def test_depth_counts_the_parents(items: list[Interval]) -> None:
    expected = []
    for row in range(len(items)):
        depth, above = 0, brute_parent(items, row)
        while above != NONE:
            depth, above = depth + 1, brute_parent(items, above)
        expected.append(depth)
    assert build(items).depth().tolist() == expected


@given(intervals(), st.data())
def test_nearest_climbs_the_parents(items: list[Interval], data: st.DataObject) -> None:
    marked = data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    parent = build(items).parent
    expected = []
    for row in range(len(items)):
        while row != NONE and not marked[row]:
            row = int(parent[row])
        expected.append(row)
    assert nearest(np.array(marked, dtype=bool), parent).tolist() == expected


@given(intervals(), st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 22)), max_size=20))
def test_enclosing(items: list[Interval], moments: list[tuple[int, int]]) -> None:
    group, at = (np.array([m[k] for m in moments], dtype=np.int64) for k in range(2))
    expected = [brute_enclosing(items, g, t) for g, t in moments]
    assert build(items).enclosing(group, at).tolist() == expected


@given(intervals(), st.randoms(use_true_random=False))
def test_enclosing_of_many_moments(items: list[Interval], random: Random) -> None:
    """Many more moments than intervals are answered edge by edge, in whatever order they come."""
    moments = [(g, at) for g in range(4) for at in range(-1, 24)] * 5
    random.shuffle(moments)
    group, at = (np.array(column, dtype=np.int64) for column in zip(*moments, strict=True))
    expected = [brute_enclosing(items, *moment) for moment in moments]
    assert build(items).enclosing(group, at).tolist() == expected
    order = np.argsort(at, kind="stable")
    assert build(items).enclosing(group[order], at[order]).tolist() == np.array(expected)[order].tolist()


@given(intervals())
def test_rows_and_groups_do_not_matter(items: list[Interval]) -> None:
    """Groups far apart (thread ids) give what small ones do."""
    wide = [(g * 10**12, s, e) for g, s, e in items]
    assert build(wide).parent.tolist() == build(items).parent.tolist()


def test_well_nested_by_eye() -> None:
    #           0: step      1: forward  2: layer   3: backward  4: other thread
    items = [(1, 0, 100), (1, 10, 50), (1, 20, 30), (1, 50, 90), (2, 0, 100)]
    found = build(items)
    assert found.parent.tolist() == [NONE, 0, 1, 0, NONE]
    assert found.depth().tolist() == [0, 1, 2, 1, 0]
    at = np.array([5, 25, 30, 50, 99, 100, 25], dtype=np.int64)
    group = np.array([1, 1, 1, 1, 1, 1, 2], dtype=np.int64)
    assert found.enclosing(group, at).tolist() == [0, 2, 1, 3, 0, NONE, 4]


def test_a_long_chain_and_a_long_row() -> None:
    n = 50_000
    start = np.arange(n, dtype=np.int64)
    zeros = np.zeros(n, dtype=np.int64)
    siblings = nest(zeros, start * 2, start * 2 + 1)
    assert (siblings.parent == NONE).all()
    one_parent = nest(np.zeros(n + 1, np.int64), np.r_[0, start * 2 + 1], np.r_[2 * n + 2, start * 2 + 2])
    assert (one_parent.parent[1:] == 0).all()

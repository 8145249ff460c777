"""Interval algebra against sets of integer instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.intervals import Spans, covered, gaps, intersect, join, subtract, union

HORIZON = 40

#: Any intervals, also empty and backwards ones, which cover nothing.
pairs = st.lists(st.tuples(st.integers(0, HORIZON), st.integers(0, HORIZON)), max_size=15)
moments = st.lists(st.integers(-5, HORIZON + 5), max_size=10)


def arrays(items: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return tuple(np.array([i[k] for i in items], dtype=np.int64) for k in range(2))  # type: ignore[return-value]


def instants(items: list[tuple[int, int]]) -> set[int]:
    return {t for a, b in items for t in range(a, b)}


def spans(items: list[tuple[int, int]]) -> Spans:
    return union(*arrays(items))


def same(found: Spans, expected: set[int]) -> None:
    """The set, and its only right form: sorted, not empty, not touching."""
    assert instants(list(zip(found.start.tolist(), found.end.tolist(), strict=True))) == expected
    assert (found.start < found.end).all()
    assert (found.end[:-1] < found.start[1:]).all()
    assert found.start.dtype == found.end.dtype == np.int64
    assert found.length() == len(expected)


@given(pairs)
def test_union(a: list[tuple[int, int]]) -> None:
    same(spans(a), instants(a))


@given(pairs, pairs)
def test_intersect_and_subtract(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    same(intersect(spans(a), spans(b)), instants(a) & instants(b))
    same(subtract(spans(a), spans(b)), instants(a) - instants(b))


@given(pairs, st.integers(-5, HORIZON + 5), st.integers(-5, HORIZON + 5))
def test_clip_and_gaps(a: list[tuple[int, int]], start: int, end: int) -> None:
    window = set(range(start, end))
    same(spans(a).clip(start, end), instants(a) & window)
    same(gaps(spans(a), start, end), window - instants(a))
    same(Spans.of(start, end), window)


@given(pairs, pairs)
def test_covered(items: list[tuple[int, int]], by: list[tuple[int, int]]) -> None:
    expected = [len(set(range(a, b)) & instants(by)) for a, b in items]
    assert covered(*arrays(items), spans(by)).tolist() == expected
    assert spans(by).meets(*arrays(items)).tolist() == [ns > 0 for ns in expected]


@given(pairs, moments)
def test_measure_before_and_contains(a: list[tuple[int, int]], at: list[int]) -> None:
    t = np.array(at, dtype=np.int64)
    assert spans(a).measure_before(t).tolist() == [sum(x < m for x in instants(a)) for m in at]
    assert spans(a).contains(t).tolist() == [m in instants(a) for m in at]


@given(pairs, st.integers(-(2**61), 2**61))
def test_times_of_any_size(a: list[tuple[int, int]], shift: int) -> None:
    """Nanoseconds since 1970 are as good as small numbers."""
    moved = spans([(s + shift, e + shift) for s, e in a])
    here = spans(a)
    assert (moved.start - shift).tolist() == here.start.tolist()
    assert (moved.end - shift).tolist() == here.end.tolist()


def test_by_eye() -> None:
    a = spans([(0, 10), (10, 12), (20, 30), (5, 6)])
    assert (a.start.tolist(), a.end.tolist()) == ([0, 20], [12, 30])
    b = subtract(a, spans([(2, 4), (11, 25)]))
    assert (b.start.tolist(), b.end.tolist()) == ([0, 4, 25], [2, 11, 30])
    assert len(Spans.empty()) == 0


@given(pairs, st.lists(st.tuples(st.integers(0, HORIZON), st.integers(0, HORIZON)), max_size=2))
def test_join_of_sets_of_like_size_and_of_few_with_many(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    same(join(spans(a), spans(b)), instants(a) | instants(b))
    apart = [(3 * at, 3 * at + 1) for at in range(HORIZON // 3)]
    same(join(spans(b), spans(apart)), instants(b) | instants(apart))

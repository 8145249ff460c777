"""Levels of detail against brute force: every bucket of every level, mark by mark."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.timeline.pyramid import Buckets, Pyramid, buckets
from stepscope.timeline.rows import lines_of
from stepscope.timeline.track import PER_PIXEL, Track

FAMILIES = 3
marks = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 90), st.integers(0, FAMILIES - 1)), min_size=1, max_size=40
)


def arrays(given: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    given = sorted(given)
    start = np.array([s for s, _, _ in given], np.int64)
    return start, start + np.array([d for _, d, _ in given]), np.array([f for *_, f in given], np.uint8)


def by_hand(given: list[tuple[int, int, int]], lo: int, hi: int) -> tuple[int, int, list[int]]:
    """Busy nanoseconds of a bucket one by one, marks that begin in it, and the time of each family."""
    busy = sum(any(s <= t < s + d for s, d, _ in given) for t in range(lo, hi))
    time = [sum(max(0, min(s + d, hi) - max(s, lo)) for s, d, f in given if f == k) for k in range(FAMILIES)]
    return busy, sum(lo <= s < hi for s, _, _ in given), time


def check(level: Buckets, given: list[tuple[int, int, int]]) -> None:
    for i in range(len(level.busy)):
        lo = (level.first + i) << level.level
        busy, count, time = by_hand(given, lo, lo + (1 << level.level))
        assert (level.busy[i], level.count[i], level.time[:, i].tolist()) == (busy, count, time)
        assert level.dominant[i] == time.index(max(time))


@given(marks)
def test_every_level_is_what_counting_gives(given):
    start, end, family = arrays(given)
    pyramid = Pyramid.of(start, end, family, FAMILIES)
    for level in pyramid.levels:
        check(level, given)
    assert sum(pyramid.levels[-1].count) == len(given)
    check(pyramid.at(pyramid.levels[-1].level + 3), given)


@given(marks, st.integers(0, 6))
def test_levels_finer_than_those_kept_are_counted_too(given, level):
    check(buckets(*arrays(given), FAMILIES, level), given)


def track(given: list[tuple[int, int, int]]) -> Track:
    start, end, family = arrays(given)
    rows = np.arange(len(start))
    return Track(0, "streams", 7, "", start, end, rows, family, np.arange(3, dtype=np.uint8), np.arange(3), rows)


#: Marks of a stream follow each other.
streams = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(0, 2)), min_size=1, max_size=300).map(
    lambda pairs: [
        (int(at), d, f)
        for at, (_, d, f) in zip(np.cumsum([g + d for g, d, _ in pairs]) - [d for _, d, _ in pairs], pairs, strict=True)
    ]
)


@given(streams, st.integers(0, 5000), st.integers(1, 9000))
def test_a_view_has_at_most_two_marks_a_pixel_and_loses_nothing(given, lo, length):
    hi, pixels = lo + length, 16
    shown = track(given).view(lo, hi, pixels)
    assert len(shown.start) <= PER_PIXEL * pixels
    single = {int(row) for row, busy in zip(shown.row, shown.busy, strict=True) if not busy}
    boxes = [(s, e) for s, e, busy in zip(shown.start, shown.end, shown.busy, strict=True) if busy]
    for row, (start, duration, _) in enumerate(given):
        if start < hi and start + duration > lo and row not in single:
            at = max(start, lo)
            assert any(s <= at < e for s, e in boxes), f"the mark at {start} is nowhere"


def test_parts_of_a_bucket_are_its_shares():
    rows = [(k, 1, k % 2) for k in range(4096)]
    start, end, family = arrays(rows)
    none = np.zeros(len(rows), np.int64)
    parts = Track(
        0, "parts", 0, "", start, end, none, family, np.arange(2, dtype=np.uint8), np.arange(2), none, shares=True
    )
    shown = parts.view(0, 4096, 64)
    assert len(shown.start) <= PER_PIXEL * 64
    for kind in (0, 1):
        assert int((shown.end - shown.start)[shown.kind == kind].sum()) == 2048


def test_a_search_marks_the_buckets_that_hold_a_match():
    given = [(10 * k, 5, 0) for k in range(5000)]
    matches = np.zeros(5000, dtype=bool)
    matches[3000] = True
    shown = track(given).view(0, 50_000, 100, matches)
    (at,) = np.flatnonzero(shown.match)
    assert shown.start[at] <= 30_000 < shown.end[at]


@given(marks)
def test_marks_that_overlap_lie_on_lines_of_their_own(given):
    """First fit, one mark after the other, on three lines."""
    start, end, _ = arrays(given)
    free = [0, 0]
    expected = []
    for s, e in zip(start.tolist(), end.tolist(), strict=True):
        line = next((k for k, until in enumerate(free) if until <= s), 2)
        if line < 2:
            free[line] = max(e, s)
        expected.append(line)
    found = lines_of(start, end).tolist()
    # A mark without length ends where it begins: any that begins there may follow it on its line.
    if all(d > 0 for _, d, _ in given):
        assert found == expected
    for k in (0, 1):
        mine = [(s, e) for s, e, line in zip(start.tolist(), end.tolist(), found, strict=True) if line == k]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))

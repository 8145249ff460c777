"""Numbers for equal things: by tables as by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.hang import numbering
from stepscope.sources.flight.reading import ranks_of, size_of, spans_of


@pytest.mark.parametrize("table", [1, 50, 1 << 24])
def test_pairs_are_numbered_as_by_sorting(table, monkeypatch):
    monkeypatch.setattr(numbering, "_TABLE", table)
    random = np.random.default_rng(1)
    for width in (1, 3, 40):
        first, second = random.integers(-1, width, 500), random.integers(0, width, 500)
        pairs = sorted(set(zip(first.tolist(), second.tolist(), strict=True)))
        expected = [pairs.index(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]
        assert numbering.numbered(first, second).tolist() == expected


@pytest.mark.parametrize("table", [1, 50, 1 << 24])
def test_ranks_are_counted_once(table, monkeypatch):
    monkeypatch.setattr(numbering, "_TABLE", table)
    random = np.random.default_rng(2)
    number, rank = random.integers(0, 9, 400), np.sort(random.choice([3, 4, 9, 70, 71], 400))
    expected = [len(set(rank[number == n].tolist())) for n in range(9)]
    assert numbering.distinct(number, rank).tolist() == expected


def test_members_are_the_same_as_spans():
    random = np.random.default_rng(3)
    lists = [random.integers(0, 6, n).tolist() for n in range(40)]
    lists += [list(range(2, 60, step)) + extra for step in (1, 3, 8) for extra in ([], [5], [61, 62, 90])]
    for ranks in lists:
        spans = spans_of(str(ranks))
        assert list(ranks_of(spans)) == ranks and size_of(spans) == len(ranks)
        assert spans_of(tuple(map(str, ranks))) == spans
    assert spans_of(str(list(range(16_384)))) == ((0, 1, 16_384),)

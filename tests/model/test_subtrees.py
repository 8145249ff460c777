"""Sums over what is inside, and lookups in stacks however deep: against counting one by one."""

import numpy as np
import pytest

from stepscope.intervals.arrays import NONE
from stepscope.intervals.last_above import Maxima
from stepscope.model.nesting import climb, nest
from stepscope.model.subtrees import Subtrees


def _random(rng, n):
    """Intervals of three threads, nested and not."""
    start = rng.integers(0, 4 * n, n)
    return rng.integers(0, 3, n), start, start + rng.integers(1, n, n)


def _stack(depth):
    """One range in the other, `depth` of them, and as many beside each other after them."""
    at = np.arange(depth, dtype=np.int64)
    start = np.concatenate([at, 2 * depth + 2 * at])
    end = np.concatenate([2 * depth - at, 2 * depth + 2 * at + 1])
    return np.zeros(2 * depth, np.int64), start, end


def test_the_last_above():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 50, 300)
    at, bound = rng.integers(-1, 300, 500), rng.integers(0, 55, 500)
    found = Maxima(values).last_above(at, bound)
    for i, k, b in zip(found.tolist(), at.tolist(), bound.tolist(), strict=True):
        assert i == max((j for j in range(k + 1) if values[j] > b), default=NONE)


@pytest.mark.parametrize("seed", range(5))
def test_lookups_past_the_climb(monkeypatch, seed):
    """With no climbing at all, parents and what encloses a moment are the same."""
    rng = np.random.default_rng(seed)
    group, start, end = _random(rng, 200)
    moments = rng.integers(0, 3, 300), rng.integers(0, 1000, 300)
    wanted = rng.random(200) < 0.1
    climbed = nest(group, start, end)
    enclosing = climbed.enclosing(*moments)
    marked = climb(enclosing, wanted, climbed.parent)
    monkeypatch.setattr("stepscope.model.nesting._CLIMBS", 1)
    monkeypatch.setattr("stepscope.model.nesting._FEW_GROUPS", 0)
    looked_up = nest(group, start, end)
    assert looked_up.parent.tolist() == climbed.parent.tolist()
    assert looked_up.enclosing(*moments).tolist() == enclosing.tolist()
    assert climb(enclosing, wanted, climbed.parent).tolist() == marked.tolist()
    for found, g, t in zip(enclosing.tolist(), *(m.tolist() for m in moments), strict=True):
        open_then = np.flatnonzero((group == g) & (start <= t) & (end > t))
        assert (found == NONE) == (len(open_then) == 0)
        assert found == NONE or start[found] == start[open_then].max()


@pytest.mark.parametrize("seed", range(3))
def test_sums_over_what_is_inside(seed):
    rng = np.random.default_rng(seed)
    nesting = nest(*_random(rng, 120))
    own, kind = rng.integers(-9, 9, 120), rng.integers(0, 5, 120)
    inside = Subtrees(nesting.order, nesting.depth())
    ancestors = [[i] for i in range(120)]
    for chain in ancestors:
        while nesting.parent[chain[-1]] != NONE:
            chain.append(int(nesting.parent[chain[-1]]))
    members = [[i for i in range(120) if j in ancestors[i]] for j in range(120)]
    assert inside.total(own).tolist() == [own[m].sum() for m in members]
    assert inside.least(own).tolist() == [own[m].min() for m in members]
    assert inside.most(own).tolist() == [own[m].max() for m in members]
    alone = [all(kind[j] != kind[i] for j in ancestors[i][1:]) for i in range(120)]
    assert inside.outermost(kind).tolist() == alone


def test_a_stack_of_a_hundred_thousand():
    """Climbed one by one, this would be 10^10 steps."""
    depth = 100_000
    group, start, end = _stack(depth)
    nesting = nest(group, start, end)
    assert nesting.depth().tolist() == [*range(depth), *[0] * depth]
    assert (nesting.enclosing(group, end) == NONE).sum() == depth  # where each ends, one after the stack: nothing
    inside = Subtrees(nesting.order, nesting.depth())
    assert inside.total(np.ones(2 * depth, np.int64)).tolist() == [*range(depth, 0, -1), *[1] * depth]
    assert inside.outermost(np.zeros(2 * depth, np.int64)).sum() == depth + 1


def test_no_ranges():
    none = np.empty(0, np.int64)
    nesting = nest(none, none, none)
    inside = Subtrees(nesting.order, nesting.depth())
    assert inside.total(none).tolist() == inside.least(none).tolist() == inside.outermost(none).tolist() == []

"""Clocks from the ends of collectives: overlapping groups, drift, odd ends, and what nothing connects."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.derive.comm.clock_fit import align


def observed(groups, offsets, drifts, n=40, noise=300.0, kind="all_reduce", seed=0, span=2e9):
    """Collectives of each group of sources, spread over the capture."""
    r = np.random.default_rng(seed)
    meetings, sides = [], []
    for g, members in enumerate(groups):
        for t in np.sort(r.uniform(0, span, n)):
            number = len(meetings)
            meetings.append({"meeting": number, "kind": kind, "communicator": str(g)})
            for s in members:
                end = t + offsets[s] + drifts[s] * 1e-6 * t + abs(r.normal(0, noise))
                sides.append({"meeting": number, "source": s, "rank": s, "op": number, "end_ns": round(end)})
    return pl.DataFrame(meetings), pl.DataFrame(sides)


def test_a_chain_of_overlapping_pairs():
    """Each host shares a group with the next one only: errors must not pile up more than along a path."""
    n = 32
    offsets = [0.0, *np.random.default_rng(1).uniform(-1e9, 1e9, n - 1)]
    drifts = [0.0, *np.random.default_rng(2).uniform(-40, 40, n - 1)]
    found = align(*observed([(i, i + 1) for i in range(n - 1)], offsets, drifts), n, 0)
    assert np.all(found.component == 0)
    assert np.abs(found.offset - offsets).max() < 1500
    assert np.abs(found.drift * 1e6 - drifts).max() < 1.5


def test_odd_ends_do_not_count():
    meetings, sides = observed([(0, 1)], [0.0, 5e5], [0.0, 0.0], n=41)
    late = sides.with_row_index("i").with_columns(
        pl.when(pl.col("i") % 8 == 1).then(pl.col("end_ns") + 3_000_000).otherwise("end_ns").alias("end_ns")
    )
    found = align(meetings, late.drop("i"), 2, 0)
    assert abs(found.offset[1] - 5e5) < 500


def test_what_nothing_connects_stays_apart():
    found = align(*observed([(0, 1), (2, 3)], [0.0, 1e6, 7e6, 9e6], [0.0] * 4), 4, 0)
    assert found.component.tolist() == [0, 0, 2, 2]
    assert abs(found.offset[1] - 1e6) < 500 and abs(found.offset[3] - 2e6) < 500 and found.offset[2] == 0


def test_clocks_that_do_not_differ_are_one():
    found = align(*observed([(0, 1, 2)], [0.0, 150.0, 4e4], [0.0] * 3), 3, 0)
    assert found.same.tolist() == [0, 0, 2]
    assert found.offset[1] == 0 and found.drift[1] == 0
    moved = found.correct(np.array([0, 1, 2]), np.array([10**9] * 3))
    assert moved[:2].tolist() == [10**9, 10**9] and abs(moved[2] - 10**9 + 4e4) < 500


@pytest.mark.parametrize("n", [1, 2])
def test_a_single_collective_proves_nothing(n):
    """One end each says nothing about how good it is: times stay as recorded."""
    found = align(*observed([(0, 1)], [0.0, 3e5], [0.0, 0.0], n=n), 2, 0)
    assert found.offset[1] == 0 or n == 2


def test_correction_is_exact_for_large_offsets_with_drift():
    offsets, drifts = [0.0, 9e8], [0.0, 50.0]
    found = align(*observed([(0, 1)], offsets, drifts, noise=20.0), 2, 0)
    true = np.array([10**6, 10**9, 19 * 10**8])
    read = (true + 9e8 + 50e-6 * true).round().astype(np.int64)
    assert np.abs(found.correct(np.array([1, 1, 1]), read) - true).max() < 200

"""Very many clocks are fitted as few are, without their matrix."""

import numpy as np
import polars as pl
import pytest

from stepscope.derive.comm import clock_fit


def _job(clocks, groups, each=12):
    """Collectives of `groups` of clocks whose offsets are known: their ends, read off each clock."""
    rng = np.random.default_rng(7)
    offset = rng.normal(0, 1e6, clocks)
    offset[0] = 0
    sides, meetings = [], []
    for group, members in enumerate(groups):
        for end in rng.uniform(0, 1e9, each):
            meeting = len(meetings)
            meetings.append((meeting, "all_reduce", f"group {group}"))
            read = (end + offset[members] + rng.normal(0, 300, len(members))).astype(np.int64)
            sides += [(meeting, s, s, meeting, at) for s, at in zip(members.tolist(), read.tolist(), strict=True)]
    return (
        pl.DataFrame(meetings, schema=["meeting", "kind", "communicator"], orient="row"),
        pl.DataFrame(sides, schema=["meeting", "source", "rank", "op", "end_ns"], orient="row"),
        offset,
    )


def _mesh(clocks, size):
    """Groups of `size` neighbours, and those of the same place in each."""
    every = np.arange(clocks)
    return [*every.reshape(-1, size), *every.reshape(-1, size).T]


@pytest.mark.parametrize("groups", [[np.arange(40)], _mesh(40, 8)], ids=["one group", "a mesh"])
def test_as_the_matrix_gives(monkeypatch, groups):
    meetings, sides, _ = _job(40, groups)
    whole = clock_fit.align(meetings, sides, 40, 0)
    monkeypatch.setattr(clock_fit, "FEW", 0)
    without = clock_fit.align(meetings, sides, 40, 0)
    assert without.offset == pytest.approx(whole.offset, abs=30)  # of deviations of 300 ns
    assert without.same.tolist() == whole.same.tolist()


@pytest.mark.slow
def test_thousands_of_clocks():
    """As a matrix this would be half a gigabyte, and minutes."""
    clocks = 4_000
    meetings, sides, offset = _job(clocks, _mesh(clocks, 50), each=4)
    fit = clock_fit.align(meetings, sides, clocks, 0)
    assert np.median(np.abs(fit.offset - offset)) < 1000

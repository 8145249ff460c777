"""NVTX ranges of launches, against the plain definition on random ranges, well nested or not."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from fake import call, make, nvtx, op
from stepscope.model.profile import Profile
from stepscope.nsys.reports import report
from stepscope.nsys.reports.attribution import NONE
from stepscope.nsys.reports.view import View

Spans = list[tuple[int, int, int, int]]
#: Of ranges, then of kernels.
NAMES = ("a", "b", "c", "k1", "k2")
#: (thread, start, length, name)
spans = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 60), st.integers(1, 40), st.integers(0, 2)), max_size=14)
calls = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 80), st.integers(1, 12), st.integers(3, 4)), max_size=10)


def drawn(ranges: Spans, launches: Spans) -> Profile:
    """One rank with the ranges and calls drawn; each call launches one kernel, later."""
    return make(
        ranges=[nvtx(s, s + d, NAMES[n], tid=t, row=i + 1) for i, (t, s, d, n) in enumerate(ranges)],
        calls=[call(s, s + d, i + 1, "launch", tid=t) for i, (t, s, d, _) in enumerate(launches)],
        ops=[op(s + 100 + i, s + 100 + i + d, NAMES[n], call=i + 1) for i, (_, s, d, n) in enumerate(launches)],
    )


def containing(ranges: Spans, call: tuple[int, int, int, int]) -> list[int]:
    t, s, d, _ = call
    return [i for i, (u, a, b, _) in enumerate(ranges) if u == t and a <= s and a + b >= s + d]


@given(spans, calls)
def test_kernels_are_credited_to_every_range_that_contains_their_launch(ranges, launches):
    if not launches:
        return
    found = report(drawn(ranges, launches), "nvtx_kern_sum")
    expected: dict[tuple[str | None, int, str], tuple[set[int], set[int], list[int]]] = {}
    for i, launch in enumerate(launches):
        for r in containing(ranges, launch) or [None]:
            name = None if r is None else "abc"[ranges[r][3]]
            seen, kernels, durations = expected.setdefault((name, launch[0], f"k{launch[3] - 2}"), (set(), set(), []))
            seen |= set() if r is None else {r}
            kernels.add(i)
            durations.append(launch[2])
    got = {
        (row["NVTX Range"], row["TID"], row["Kernel Name"]): (
            row["NVTX Inst"],
            row["Kern Inst"],
            row["Total Time (ns)"],
        )
        for row in found.iter_rows(named=True)
    }
    assert got == {k: (len(seen), len(kernels), sum(d)) for k, (seen, kernels, d) in expected.items()}


@given(spans, calls)
def test_projection_spans_what_was_launched_inside(ranges, launches):
    if not launches or not ranges:
        return
    found = report(drawn(ranges, launches), "nvtx_gpu_proj_trace")
    inside: dict[int, list[int]] = {}
    for i, launch in enumerate(launches):
        for r in containing(ranges, launch):
            inside.setdefault(r + 1, []).append(i)
    starts = [s + 100 + i for i, (_, s, _, _) in enumerate(launches)]
    ends = [s + d for s, (_, _, d, _) in zip(starts, launches, strict=True)]
    named = found.filter(pl.col("RangeId").is_not_null())
    assert named["RangeId"].to_list() == sorted(inside)
    for row in named.iter_rows(named=True):
        mine = inside[row["RangeId"]]
        assert row["NumGPUOps"] == len(mine)
        assert row["Projected Start (ns)"] == min(starts[i] for i in mine)
        assert row["Projected Duration (ns)"] == max(ends[i] for i in mine) - min(starts[i] for i in mine)


@given(spans, calls)
def test_innermost_is_the_latest_started(ranges, launches):
    if not launches or not ranges:
        return
    view = View(drawn(ranges, launches))
    found = view.attribution
    start = found.ranges["start_ns"].to_numpy()
    for row, innermost in zip(found.calls.tolist(), found.innermost.tolist(), strict=True):
        call = view.calls.row(row, named=True)
        length = call["end_ns"] - call["start_ns"]
        expected = [ranges[i][1] for i in containing(ranges, (call["tid"], call["start_ns"], length, 0))]
        assert (start[innermost] if innermost != NONE else None) == max(expected, default=None)
    assert np.all(np.diff(found.calls) > 0)

"""The launch queue: which launches waited for room, by hand and on real traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake import call, make, op
from stepscope import api
from stepscope.analyses.launches import launches
from stepscope.derive.host import launch_queue
from stepscope.derive.host.waits import host_waits
from stepscope.derive.rank.data import ranks_of
from stepscope.derive.windows.spec import WindowSpec


def test_a_launch_waits_for_its_own_stream_alone(monkeypatch: pytest.MonkeyPatch):
    """Three may be pending on a stream: the third waits for the first, whatever the other stream has."""
    monkeypatch.setattr(launch_queue, "LIMIT", replace(launch_queue.LIMIT, value=3))
    calls = [call(t, t + 1, t) for t in range(1, 7)] + [call(10, 52, 10), call(60, 61, 11)]
    ops = [
        *(op(50 + 10 * t, 60 + 10 * t, stream=9, call=t) for t in (1, 2, 3, 4)),  # all of these called before any began
        *(op(45 + 5 * t, 50 + 5 * t, stream=7, call=t + 4) for t in (1, 2)),
        op(60, 65, stream=7, call=10),
        op(100, 105, stream=7, call=11),
    ]
    (data,) = ranks_of(make(ops=ops, calls=calls))
    held = host_waits(data)
    # The call of 10 returned at 52, when the first op of stream 7 had started at 50.
    assert held.call.tolist() == [6] and held.start.tolist() == [True]
    assert (data.start[held.op].tolist(), data.stream[held.op].tolist()) == ([50], [7])


def test_a_launch_that_is_as_quick_as_any_waited_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launch_queue, "LIMIT", replace(launch_queue.LIMIT, value=3))
    calls = [call(0, 5, 1), call(5, 10, 2), call(48, 53, 3)]
    ops = [op(50, 60, call=1), op(60, 70, call=2), op(70, 80, call=3)]
    (data,) = ranks_of(make(ops=ops, calls=calls))
    assert host_waits(data).call.tolist() == []


def test_no_limit_is_known_of_hip():
    calls = [call(0, 5, 1, "hipLaunchKernel"), call(5, 10, 2, "hipExtModuleLaunchKernel")]
    profile = make(ops=[op(50, 60, call=1), op(60, 70, call=2)], calls=calls)
    row = launches(profile, WindowSpec(), by="rank").rows.to_dicts()[0]
    assert (row["depth_max"], row["full_ns"], row["blocked_ns"]) == (2, None, None)


@pytest.mark.parametrize(
    ("trace", "least"), [("public/a100_lm2.7b_nvtx.sqlite", 2_100), ("h200/hf/hf4_healthy.sqlite", 170)]
)
def test_waits_for_room_explain_the_time_under_a_full_queue(shared: Path, trace: str, least: int):
    """Two figures from one trace: time in launch calls while the queue was full, and calls that a start let go."""
    profile = api.open(shared / "traces" / trace, cache=False)
    blocked = launches(profile, WindowSpec(start=-(2**62), end=2**62), by="rank").rows["blocked_ns"].sum()
    waited = 0
    for data in ranks_of(profile):
        held = host_waits(data)
        took = (data.calls["end_ns"] - data.calls["start_ns"]).to_numpy()[held.call[held.start]]
        waited += int(np.sum(took))
    assert waited > least * 1_000_000
    assert 0.9 < waited / blocked < 1.1

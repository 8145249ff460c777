"""The critical path and its what-ifs on profiles written by hand, every segment worked out on paper."""

from __future__ import annotations

from typing import Any

import pytest

from fake import call, make, nvtx, op, record, wait
from stepscope import api
from stepscope.derive.host.waits import host_waits
from stepscope.derive.rank.data import ranks_of
from stepscope.model.profile import Profile

Segment = tuple[str, str, int, int]


def path(profile: Profile, **options: Any) -> list[Segment]:
    rows = api.analyse(profile, "critical-path", **options).rows.to_dicts()
    return [(r["kind"], r["name"], r["start_ns"], r["end_ns"]) for r in rows]


def launches(*times: int, name: str = "cudaLaunchKernel") -> list[dict[str, Any]]:
    return [call(t, t + 2, id=i, name=name) for i, t in enumerate(times, 1)]


def test_stream_order_and_launch():
    # b was launched long before a ended; a as soon as it could be.
    profile = make(
        ops=[op(10, 50, "a", call=1), op(51, 80, "b", call=2)],
        calls=launches(5, 8),
        ranges=[nvtx(0, 100, "step 0")],
    )
    assert path(profile) == [
        ("host", "a", 0, 5),
        ("launch", "a", 5, 10),
        ("compute", "a", 10, 50),
        ("queue", "b", 50, 51),
        ("compute", "b", 51, 80),
    ]


def test_an_event_of_another_stream():
    profile = make(
        ops=[op(10, 90, "slow", 9, 1), op(12, 30, "quick", 7, 2), op(91, 99, "after", 7, 3)],
        calls=launches(3, 6, 20),
        syncs=[record(10, 1, 9), wait(12, 1, 7)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    assert path(profile)[-3:] == [("compute", "slow", 10, 90), ("queue", "after", 90, 91), ("compute", "after", 91, 99)]


def test_without_event_records_the_op_that_ended_last_is_taken_and_said():
    usual = [op(12 + 3 * i, 14 + 3 * i, "quick", 7, 2 + i) for i in range(5)]  # 1 ns apart, as streams go
    profile = make(
        ops=[op(10, 90, "slow", 9, 1), *usual, op(91, 99, "after", 7, 7)],
        calls=[call(i, i + 1, id=i) for i in range(1, 8)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    result = api.analyse(profile, "critical-path")
    assert result.rows["name"].to_list()[-3:] == ["slow", "after", "after"]
    assert any("no event records" in n and ": 1 ops" in n for n in result.notes)


def test_the_host_waited_for_the_gpu():
    profile = make(
        ops=[op(10, 60, "a", call=1), op(90, 99, "b", call=3)],
        calls=[*launches(5), call(20, 65, id=2, name="cudaDeviceSynchronize"), call(85, 87, id=3)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    assert path(profile) == [
        ("host", "a", 0, 5),
        ("launch", "a", 5, 10),
        ("compute", "a", 10, 60),
        ("sync", "a", 60, 65),
        ("host", "b", 65, 85),
        ("launch", "b", 85, 90),
        ("compute", "b", 90, 99),
    ]


def test_a_synchronization_with_nothing_to_wait_for_is_the_hosts_time():
    profile = make(
        ops=[op(10, 19, "a", call=1), op(90, 99, "b", call=3)],
        calls=[*launches(5), call(20, 65, id=2, name="cudaDeviceSynchronize"), call(85, 87, id=3)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    assert path(profile)[0] == ("host", "b", 0, 85)


def test_a_wait_of_a_thread_that_others_did_not_join():
    """The watchdog waits for a, but the main thread goes on launching: its launch does not hang on that."""
    watchdog = call(20, 65, id=2, name="cudaDeviceSynchronize", tid=2)
    profile = make(
        ops=[op(10, 60, "a", call=1), op(33, 40, "c", 8, call=4), op(90, 99, "b", 8, call=3)],
        calls=[*launches(5), watchdog, call(30, 32, id=4), call(85, 87, id=3)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    assert path(profile)[0] == ("host", "b", 0, 85)


def test_a_synchronous_copy_is_not_held_up_by_itself():
    profile = make(
        ops=[
            op(10, 30, "a", call=1),
            op(31, 40, "c", call=2, kind="memcpy", copy_kind="DtoH"),
            op(50, 60, "b", call=3),
        ],
        calls=[*launches(5), call(8, 42, id=2, name="cudaMemcpy"), call(46, 48, id=3)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    kinds = [(k, n) for k, n, _, _ in path(profile)]
    assert kinds[2:6] == [("compute", "a"), ("queue", "c"), ("copy", "c"), ("sync", "c")]
    waits = host_waits(next(iter(ranks_of(profile))))
    assert waits.call.tolist() == [1] and waits.op.tolist() == [1]


def test_the_last_arrival_at_a_collective():
    """Two ranks all-reduce; rank 1 comes late, so the path goes over its compute."""
    ops, calls, ranges = [], [], []
    for rank, work in ((0, 30), (1, 70)):
        ops += [
            op(10, 10 + work, f"work{rank}", 7, 1, proc=rank),
            op(11 + work, 90, "ncclDevKernel_AllReduce", 9, 2, proc=rank),
        ]
        calls += [{**c, "proc": rank} for c in launches(3, 6)]
        ranges.append(nvtx(rank, 100, "step 0", proc=rank))
    syncs = [{**s, "proc": r} for r in (0, 1) for s in (record(7, 1, 7), wait(8, 1, 9))]
    # The wait is called before the launch of the all-reduce.
    calls = [c if c["correlation"] == 1 else {**c, "start_ns": 9, "end_ns": 10} for c in calls]
    profile = make(ops=ops, calls=calls, syncs=syncs, ranges=ranges)
    rows = api.analyse(profile, "critical-path").rows.to_dicts()
    assert [(r["rank"], r["kind"], r["start_ns"], r["end_ns"]) for r in rows[-3:]] == [
        (1, "compute", 10, 80),
        (1, "queue", 80, 81),
        (1, "comm", 81, 90),
    ]
    assert rows[0]["start_ns"] == 0 and sum(r["dur_ns"] for r in rows) == 90


def test_what_if_by_hand():
    profile = make(
        ops=[op(9, 59, "a", call=1), op(90, 99, "b", call=3)],
        calls=[*launches(4), call(20, 65, id=2, name="cudaDeviceSynchronize"), call(85, 87, id=3)],
        ranges=[nvtx(0, 100, "step 0")],
    )
    found = api.analyse(profile, "critical-path", what_if=("host=2", "hide-comm")).summary["what_if"]
    assert [f["replay_ns"] for f in found] == [99, 99]
    # The host takes half of 0..6 and of 65..87: 3 + 11 less.
    assert found[0]["bound_ns"] == 85 and found[0]["saves_ns"] == 14
    assert found[1]["bound_ns"] == 99


def test_no_work_in_the_step():
    ops, calls = [op(10, 20, call=1), op(300, 310, call=2)], [*launches(5), call(299, 300, 2)]
    profile = make(ops=ops, calls=calls, ranges=[nvtx(0, 30, "x")])
    with pytest.raises(Exception, match="no GPU work"):
        api.analyse(profile, "critical-path", start=100, end=200)

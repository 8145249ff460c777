"""Thresholds of findings: what lies on either side of one is judged differently."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import fake
from fake import Row, call, make, nvtx, op
from faultcases import diagnosed, scenario
from stepscope import api
from stepscope.derive.peers.compute import Compared
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings import case, thresholds
from stepscope.findings.case import Case
from stepscope.findings.detectors import host_sync, straggler, tiny_kernels
from stepscope.findings.evidence import hosts, launching, measurement
from stepscope.findings.evidence.launching import Slow, Usual, slow_hosts, usual
from stepscope.intervals import Spans

US = 1000


# -- either side of a threshold ----------------------------------------------------------------------------------------


def findings(ops: list[Row], calls: list[Row], end: int, **more: Any) -> dict[str, dict[str, Any]]:
    """What is found in a step of one rank that ends at `end` µs, however little, by id."""
    ranges = [nvtx(0, end * US, "step 0"), nvtx((end + 1) * US, (end + 2) * US, "step 1")]
    result = api.analyse(make(ops=ops, calls=calls, ranges=ranges, **more), "diagnose", index=0, least=0.0)
    return {row["id"]: row for row in result.rows.to_dicts()}


def launches(kernels: int, every: int, long: int = 2, takes: int = 3, **more: Any) -> tuple[list[Row], list[Row]]:
    """A kernel of `long` µs per launch, one launch `every` so many µs, whose call takes `takes`."""
    calls = [call((10 + every * k) * US, (10 + every * k + takes) * US, id=k + 1) for k in range(kernels)]
    names = more.pop("names", ("a", "b", "c", "d", "e", "f", "g"))
    start = [(12 + takes + every * k) * US for k in range(kernels)]
    ops = [op(s, s + long * US, names[k % len(names)], call=k + 1, **more) for k, s in enumerate(start)]
    return ops, calls


def test_what_cannot_matter_is_not_looked_at() -> None:
    """A step of 1,000 µs in which the host allocates for so long that the GPU waits: 5 µs are half a per cent of it."""

    def found(long: int) -> bool:
        ops, calls = launches(2, 500 + long, long=500 - 15)
        calls.insert(1, call((500 - 10) * US, (500 - 10 + long) * US, name="cudaMalloc"))
        calls[2], ops[1] = calls[2] | {"correlation": 2}, ops[1] | {"correlation": 2}
        return "allocator-churn" in findings(ops, calls, 1005 + long)

    assert found(20)
    assert not found(3)
    assert case.LOOKED_AT.value == 0.5


def test_few_launches_say_nothing() -> None:
    """Launches 30 µs apart, of which a call takes 3: a framework that takes its time, if there are enough of them."""
    enough = int(hosts.LAUNCHES_TO_TELL.value)
    assert "launch-bound" in findings(*launches(enough + 1, 30), end=30 * enough + 100)
    assert "launch-bound" not in findings(*launches(enough, 30), end=30 * enough + 100)


def speeds(*calls: int, pace: int = 20, ranks: int = 1) -> tuple[Usual, Slow]:
    """What is made of launches whose calls take so many ns in turn, one launch every `pace` µs."""
    rows = [
        {"proc": rank} | call((10 + pace * k) * US, (10 + pace * k) * US + takes, id=k + 1)
        for rank in range(ranks)
        for k, takes in enumerate(calls)
    ]
    ops = [
        {"proc": rank} | op((14 + pace * k) * US + takes, (15 + pace * k) * US + takes, call=k + 1)
        for rank in range(ranks)
        for k, takes in enumerate(calls)
    ]
    ranges = [{"proc": rank} | nvtx(0, 20 * pace * len(calls) * US, "step 0") for rank in range(ranks)]
    case = Case(make(ops=ops, calls=rows, ranges=ranges), WindowSpec(index=0))
    return usual(case), slow_hosts(case)


def test_speeds_come_from_the_trace() -> None:
    # Every fifth launch takes 3 µs, the others 11: the host can do 3, and takes 3.7 times as long.
    should, slow = speeds(*[3_000, 11_000, 11_000, 11_000, 11_000] * 10)
    assert (should.call_ns, should.measured) == (3_000, True)
    assert slow.machine == {0: pytest.approx(11 / 3)}
    # No launch takes less than 8 under this profiler: 13 are not 3.7 times what is usual, but 1.6 times.
    should, slow = speeds(*[8_000, 13_000, 13_000, 13_000, 13_000] * 10)
    assert (should.call_ns, should.measured) == (8_000, True)
    assert not slow.machine
    # Eleven µs at best: no sound host, so that others' speeds count.
    should, slow = speeds(*[11_000, 14_000, 14_000, 14_000, 14_000] * 10)
    assert (should.call_ns, should.pace_ns, should.measured) == (3_500, 6_000, False)
    assert slow.machine == {0: 4.0}


def test_a_pace_is_no_slower_than_calls_make_it() -> None:
    # Launches every 20 µs, always: nothing in the trace is faster, but calls of 3.5 need no more than 6 around them.
    should, slow = speeds(*[3_500] * 50)
    assert should.pace_ns == pytest.approx(6_000)
    assert slow.framework == {0: pytest.approx(20 / 6)}
    # One launch right after the other: the call is all that it takes.
    should, slow = speeds(*[5_000] * 50, pace=5)
    assert (should.call_ns, should.pace_ns) == (5_000, 5_000)
    assert slow == Slow({}, {}, {})


def test_a_speed_takes_enough_launches() -> None:
    enough = int(launching.LAUNCHES_FOR_A_SPEED.value)
    assert speeds(*[5_000] * enough)[0].measured
    assert not speeds(*[5_000] * (enough - 1))[0].measured


def extra_launches(times: int, peers: int, every: int) -> Spans:
    """Host time that goes with a rank whose `times` launches are so many of its peers', one `every` so many µs."""
    ops, calls = launches(times, every, long=10, names=("x",))
    case = Case(make(ops=ops, calls=calls, ranges=[nvtx(0, (20 + times * every) * US, "step 0")]), WindowSpec(index=0))
    kernels = {"name": ["x"], "n": [times], "ns": [10 * times * US], "like_n": [peers], "like_ns": [10 * peers * US]}
    kernels |= {"pace": [1.0], "size": [None]}
    return straggler._launching(case, Compared(0, pl.DataFrame(kernels), 0.0, peers=3))


def test_launches_beyond_the_peers() -> None:
    # Of 30 launches the peers make 20 or 19: one and a half times as many are other shapes, more are extra work.
    assert len(extra_launches(30, 20, every=50)) == 0
    # Eleven launches, each with the 47 µs since the call before it.
    assert extra_launches(30, 19, every=50).length() == 11 * 50 * US
    # At most 100 µs of Python go with each, and the call.
    assert extra_launches(30, 19, every=500).length() == 11 * 103 * US


def numbers(size: int, times: int = 12) -> dict[str, dict[str, Any]]:
    """A dozen times: a kernel, a copy of so many bytes to the host, a wait for it, and 20 µs of Python."""
    ops, calls = [], []
    for k in range(times):
        at, id = 10 + 60 * k, 3 * k + 1
        calls += [
            call(at * US, (at + 3) * US, id=id),
            call((at + 3) * US, (at + 6) * US, id=id + 1, name="cudaMemcpyAsync"),
            call((at + 6) * US, (at + 40) * US, id=id + 2, name="cudaStreamSynchronize"),
        ]
        ops += [
            op((at + 5) * US, (at + 35) * US, call=id),
            op(
                (at + 36) * US,
                (at + 38) * US,
                "[memcpy DtoH]",
                call=id + 1,
                kind="memcpy",
                copy_kind="DtoH",
                bytes=size,
            ),
        ]
    syncs = [
        {
            "start_ns": c["start_ns"],
            "end_ns": c["end_ns"],
            "kind": "stream_sync",
            "stream": 7,
            "correlation": c["correlation"],
        }
        for c in calls
        if c["name"] == "cudaStreamSynchronize"
    ]
    return findings(ops, calls, 60 * times + 20, syncs=syncs)


def test_a_number_is_small() -> None:
    most = int(host_sync.NUMBER.value)
    assert "reads of GPU values" in numbers(most)["host-sync"]["title"]
    assert "copies to the host" in numbers(most + 1)["host-sync"]["title"]


def test_a_few_synchronizations_are_no_measurement() -> None:
    def measured(times: int) -> bool:
        ops = [op((15 + 50 * k) * US, (45 + 50 * k) * US, call=2 * k + 1) for k in range(times)]
        calls = [
            row
            for k in range(times)
            for row in (
                call((10 + 50 * k) * US, (13 + 50 * k) * US, id=2 * k + 1),
                call((14 + 50 * k) * US, (47 + 50 * k) * US, id=2 * k + 2, name="cudaDeviceSynchronize"),
            )
        ]
        found = findings(ops, calls, 50 * times + 20)
        return "one after nearly every large kernel" in found["host-sync"]["evidence"]

    least = int(measurement.MEASURING_SYNCS.value)
    assert measured(least)
    assert not measured(least - 1)


def test_tiny_kernels_repeat() -> None:
    """Kernels of 2 µs launched 8 µs apart: those that come three times again are tiny kernels, two more are not."""
    repeats = int(tiny_kernels.TINY_REPEATS.value)

    def names(again: int) -> tuple[str, ...]:
        return (*"abcde", *("x" for _ in range(again + 1)), *"fghij")

    assert "tiny-kernels" in findings(*launches(30, 8, names=names(repeats)), end=300)
    assert "tiny-kernels" not in findings(*launches(30, 8, names=names(repeats - 1)), end=300)


def test_short_kernels_are_not_judged_by_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = fake.FakeSource.processes
    named = pl.lit("NVIDIA H200")
    monkeypatch.setattr(fake.FakeSource, "processes", lambda self: processes(self).with_columns(gpu=named))
    shape = {"grid_x": 33, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
    least = int(thresholds.LONG_KERNEL.value)
    for long, judged in ((least, True), (least - 1, False)):
        ops, calls = launches(20, 40, long=long, **shape)
        assert ("low-occupancy" in findings(ops, calls, end=900)) is judged


@pytest.mark.slow
def test_a_large_ideal_bubble_is_noted() -> None:
    # One of m + 1 on two stages: 11 % with eight micro-batches, 9 % with ten.
    for micro_batches, noted in ((8, True), (10, False)):
        notes = diagnosed(scenario("1f1b", micro_batches=micro_batches)).result.notes
        assert any("itself leaves" in note for note in notes) is noted

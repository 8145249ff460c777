"""What ran when, by hand: ops, ranges where their work ran, and the parts of the window."""

from __future__ import annotations

import polars as pl
import pytest

from fake import call, comm, make, nvtx, op
from stepscope import api
from stepscope.analyses.timeline import timeline
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile


def job() -> Profile:
    """Two steps. The first launches a gemm, in `layer`, and a communication, beside which the second begins."""
    return make(
        ops=[op(100, 200, "gemm", 7, call=1), comm(150, 420, 9, call=2), op(300, 500, "relu", 7, call=3)],
        calls=[call(5, 8, id=1), call(20, 22, id=2), call(105, 107, id=3)],
        ranges=[
            nvtx(0, 50, "step 0"),
            nvtx(2, 30, "layer00.stage1_f"),
            nvtx(18, 25, "send"),
            nvtx(100, 150, "step 1"),
            nvtx(40, 45, "empty"),
        ],
    )


def ask(spec: WindowSpec, **options: object) -> list[dict]:
    return timeline(job(), spec, **options).rows.to_dicts()  # type: ignore[arg-type]


def test_ops_of_the_window_and_what_else_runs_in_it():
    rows = ask(WindowSpec(index=0))  # ends with the communication, at 420
    assert [(r["stream"], r["name"], r["start_ns"], r["end_ns"], r["inside"]) for r in rows] == [
        (7, "gemm", 100, 200, True),
        (7, "relu", 300, 500, False),
        (9, "ncclDevKernel_SendRecv", 150, 420, True),
    ]
    assert [(r["role"], r["stage"], r["range"]) for r in rows] == [
        ("compute", "stage1_f", "layer00.stage1_f"),
        ("compute", "(no stage)", "step 1"),
        ("comm", "stage1_f", "send"),
    ]
    assert all(r["common_start_ns"] == r["start_ns"] and r["dur_ns"] == r["end_ns"] - r["start_ns"] for r in rows)


def test_ranges_lie_where_their_work_ran():
    rows = ask(WindowSpec(whole=True), by="range")
    assert [(r["depth"], r["range"], r["start_ns"], r["end_ns"], r["n"]) for r in rows] == [
        (0, "step 0", 100, 420, 2),
        (1, "layer00.stage1_f", 100, 420, 2),
        (2, "send", 150, 420, 1),
        (0, "step 1", 300, 500, 1),
    ]


def test_parts_follow_each_other_and_fill_the_window():
    rows = ask(WindowSpec(whole=True), by="part")
    assert [(r["part"], r["start_ns"], r["end_ns"]) for r in rows] == [
        ("compute", 100, 200),
        ("comm_exposed", 200, 300),
        ("compute", 300, 500),
    ]


def test_the_host_s_ranges_and_calls():
    rows = ask(WindowSpec(index=1), by="host")  # the window: from 50, on the host, to 500, on the GPU
    assert [(r["kind"], r["depth"], r["name"], r["start_ns"], r["end_ns"]) for r in rows] == [
        ("range", 0, "step 1", 100, 150),
        ("call", 1, "cudaLaunchKernel", 105, 107),
    ]
    rows = ask(WindowSpec(index=0), by="host")
    assert [(r["depth"], r["name"]) for r in rows if r["kind"] == "range"] == [
        (0, "step 0"),
        (1, "layer00.stage1_f"),
        (2, "send"),
        (1, "empty"),
        (0, "step 1"),
    ]
    assert [r["depth"] for r in rows if r["kind"] == "call"] == [2, 3, 1]


def test_a_step_begins_with_the_end_of_the_one_before_it_the_first_with_its_range():
    rows = ask(WindowSpec(index=1), by="part")
    assert [(r["part"], r["start_ns"], r["end_ns"]) for r in rows] == [("compute", 420, 500)]
    rows = ask(WindowSpec(index=0), by="part")
    assert [(r["part"], r["start_ns"], r["end_ns"]) for r in rows] == [
        ("idle", 0, 100),
        ("compute", 100, 200),
        ("comm_exposed", 200, 300),
        ("compute", 300, 420),
    ]


def test_the_step_instead_of_a_chunk():
    profile = make(
        ops=[op(100, 200, call=1), op(300, 400, call=2)],
        calls=[call(5, 8, id=1), call(20, 22, id=2)],
        ranges=[
            nvtx(0, 30, "step 0"),
            nvtx(1, 10, "forward chunk 0 backward chunk 0"),
            nvtx(12, 30, "forward chunk 1 backward chunk 1"),
        ],
    )
    assert timeline(profile, WindowSpec()).rows["start_ns"].to_list() == [100, 300]
    assert timeline(profile, WindowSpec(unit="chunk")).rows["start_ns"].to_list() == [300]
    assert timeline(profile, WindowSpec(unit="chunk", index="all")).rows["start_ns"].to_list() == [100, 300]


def test_parts_sum_to_the_breakdown(shared):
    for file in ("moe4mps/overlapped.sqlite", "train/eager.sqlite", "moe4/overlapped.rank0.pt.trace.json.gz"):
        profile = api.open(shared / "traces" / "h200" / file)
        sums = profile.timeline(by="part").rows.group_by("rank", "part").agg(pl.col("dur_ns").sum().alias("ns"))
        found = {(r["rank"], r["part"]): r["ns"] for r in sums.to_dicts()}
        for row in profile.breakdown().rows.to_dicts():
            for part in ("compute", "comm_exposed", "copy_exposed", "idle"):
                assert found.get((row["rank"], part), 0) == row[f"{part}_ns"], (file, part)


def test_refusals():
    with pytest.raises(CannotAnswer):
        timeline(make(ranges=[nvtx(0, 1, "x")]), WindowSpec())
    with pytest.raises(BadInput):
        timeline(job(), WindowSpec(), stage="(")


def test_counters_hold_until_the_next_sample():
    def sample(at: int, name: str, value: float) -> dict[str, object]:
        return {"start_ns": at, "device": 0, "name": name, "value": value}

    counters = [sample(t, "SMs Active [Throughput %]", t / 10) for t in range(0, 600, 50)] + [sample(160, "power", 7.0)]
    profile = make(ops=[op(100, 200, call=1)], calls=[call(5, 8, id=1)], counters=counters)
    rows = timeline(profile, WindowSpec(whole=True), by="counter").rows
    assert rows.select("counter", "start_ns", "end_ns", "value").rows() == [
        ("SMs Active [Throughput %]", 100, 150, 10.0),
        ("SMs Active [Throughput %]", 150, 200, 15.0),
        ("power", 160, 160, 7.0),  # the last sample of a metric holds for no known time
    ]
    with pytest.raises(CannotAnswer, match="--with gpu-metrics"):
        timeline(job(), WindowSpec(), by="counter")

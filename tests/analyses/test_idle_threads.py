"""What the launching thread did while the GPU was idle: planted samples, scheduling and OS calls; raw rows of nsys."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
from fake import Row, call, make, op
from stepscope import api
from stepscope.errors import CannotAnswer


def off(start: int, end: int, state: str = "unknown", reason: str | None = None, tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "tid": tid, "state": state, "reason": reason}


def sample(at: int, name: str, tid: int = 1, kind: str = "native") -> Row:
    return {"start_ns": at, "tid": tid, "kind": kind, "name": name, "file": "/lib/libx.so", "line": None}


def osrt(start: int, end: int, name: str, tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "tid": tid, "kind": "osrt", "name": name}


def rows(profile, **options) -> dict[tuple[str, str | None], tuple[int, int | None]]:
    found = api.analyse(profile, "idle", whole=True, by="thread", **options).rows.to_dicts()
    return {(r["thread"], r["doing"]): (r["total_ns"], r["samples"]) for r in found}


#: The GPU is idle in [100, 1000): the next op is launched at 900.
OPS = [op(0, 100, call=1), op(1000, 1100, call=2)]
CALLS = [call(0, 10, 1), call(500, 600, 7, "cudaMalloc"), call(900, 910, 2)]


def test_every_part_of_a_gap_is_told():
    p = make(
        ops=OPS,
        calls=CALLS,
        host=[osrt(650, 700, "poll"), osrt(720, 730, "write"), osrt(0, 950, "sleep", tid=2)],
        off_cpu=[
            off(200, 230),
            off(540, 550),
            off(660, 690),
            off(740, 760, "waiting", "Mutex"),
            off(770, 775, "runnable"),
        ],
        samples=[
            *(sample(t, "work") for t in (110, 120, 300)),
            sample(400, "other"),
            sample(560, "in a call"),  # calls are known exactly: no sample is needed
            sample(350, "another thread's", tid=2),
        ],
    )
    # Of [100, 900): 100 in cudaMalloc, 50 in poll, 10 in write, and 55 without a CPU outside of these.
    sampled = 800 - 100 - 50 - 10 - 55
    assert rows(p) == {
        ("launched", None): (100, None),
        ("running", "cudaMalloc"): (90, None),
        ("blocked", "cudaMalloc"): (10, None),
        ("running", "osrt: poll"): (20, None),
        ("blocked", "osrt: poll"): (30, None),
        ("running", "osrt: write"): (10, None),
        ("blocked", "Mutex"): (20, None),
        ("descheduled", None): (35, None),
        ("running", "work [libx.so]"): (round(sampled * 3 / 4), 3),
        ("running", "other [libx.so]"): (sampled - round(sampled * 3 / 4), 1),
    }


def test_without_scheduling_native_samples_say_nothing_of_time():
    """They are taken while a thread runs: one sample does not make it run all the time. Python's are taken always."""
    p = make(ops=OPS, calls=CALLS[::2], samples=[sample(110, "work"), sample(120, "wait", kind="python")])
    assert rows(p) == {("launched", None): (100, None), ("unknown", "wait [libx.so]"): (800, 1)}
    p = make(ops=OPS, calls=CALLS[::2], samples=[sample(110, "work")])
    assert rows(p) == {("launched", None): (100, None), ("unknown", None): (800, 0)}


def test_what_tells_nothing_is_refused():
    with pytest.raises(CannotAnswer, match="--with cpu,osrt"):
        rows(make(ops=OPS, calls=CALLS))


def test_names_without_templates_and_arguments():
    names = ["void a::f<int, b<c> >(x<y>)", "0x7f3ca3e8ab65", "__libc_malloc"]
    p = make(ops=OPS, calls=CALLS[::2], off_cpu=[off(0, 1)], samples=[sample(200 + i, n) for i, n in enumerate(names)])
    assert {d for s, d in rows(p) if s == "running"} == {"a::f [libx.so]", "? [libx.so]", "__libc_malloc [libx.so]"}


def test_gaps_say_what_the_thread_was():
    p = make(ops=OPS, calls=CALLS[::2], off_cpu=[off(100, 300), off(400, 700)], samples=[sample(350, "work")])
    found = api.analyse(p, "idle", whole=True).rows.select("cause", "gap_ns", "doing", "thread").rows()
    assert found == [("host", 800, "sample: work [libx.so]", "descheduled"), ("queue", 100, None, None)]
    text = api.analyse(p, "idle", whole=True, by="thread").summary["statement"]
    assert text.endswith("Before launches, the launching thread has no CPU for 500 ns.")


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_parts_sum_to_the_idle_time(seed):
    rng = np.random.default_rng(seed)

    def spans(n: int) -> list[tuple[int, int]]:
        edges = np.sort(rng.choice(np.arange(1, 2000), 2 * n, replace=False)).tolist()
        return list(zip(edges[::2], edges[1::2], strict=True))

    at = spans(5)
    p = make(
        ops=[op(1000 + s, 1000 + e, call=i) for i, (s, e) in enumerate(at, 1)],
        calls=[call(s // 2 + 900, s // 2 + 905, i, tid=1 + i % 2) for i, (s, _) in enumerate(at, 1)],
        host=[osrt(900 + s, 900 + e, "poll", tid=1 + i % 2) for i, (s, e) in enumerate(spans(4))],
        off_cpu=[off(900 + s, 900 + e, tid=1 + i % 2) for i, (s, e) in enumerate(spans(4))],
        samples=[sample(t, f"f{t % 3}", tid=1 + t % 2) for t in rng.integers(900, 3000, 30).tolist()],
    )
    total = sum(ns for ns, _ in rows(p).values())
    assert total == api.analyse(p, "breakdown", whole=True).rows["idle_ns"][0]


_LAUNCHES = """
SELECT k.start, min(r.globalTid & 0xFFFFFF) FROM (
  SELECT start, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL
  UNION ALL SELECT start, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY
  UNION ALL SELECT start, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMSET
) k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
GROUP BY k.start ORDER BY k.start
"""


@pytest.mark.parametrize(
    ("trace", "most", "doing"),
    [("h200/hf/hf1_rich", "running", None), ("public/aiprof_baseline_nvtx", "blocked", "osrt: poll")],
)
def test_real_traces_against_raw_rows(shared, trace, most, doing):
    """Idle stretches before launches, and in each the time on a CPU of the thread that launched next, by raw events."""
    file = shared / f"traces/{trace}.sqlite"
    p = stepscope.open(file, cache=False)
    gaps = p.idle().rows.filter(~pl.col("cause").is_in(["queue", "tail", "unlinked"]))
    start, end = gaps["gap_start_ns"].to_numpy(), (gaps["gap_start_ns"] + gaps["gap_ns"]).to_numpy()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        launches = np.array(db.execute(_LAUNCHES).fetchall())
        tid = launches[np.searchsorted(launches[:, 0], end), 1]
        on_cpu, hits = 0.0, 0
        for thread in np.unique(tid).tolist():
            events = db.execute(
                "SELECT start, isSchedIn FROM SCHED_EVENTS WHERE globalTid & 0xFFFFFF = ? ORDER BY start", (thread,)
            ).fetchall()
            at = np.array([0, *(t for t, _ in events), 10**12])
            got = np.array([0, *(g for _, g in events)])
            upto = np.concatenate([[0], np.cumsum(np.diff(at) * got)])
            mine = tid == thread
            on_cpu += (np.interp(end[mine], at, upto) - np.interp(start[mine], at, upto)).sum()
            taken = "SELECT start FROM COMPOSITE_EVENTS WHERE globalTid & 0xFFFFFF = ?"
            hits += sum(bool(((start[mine] <= t) & (t < end[mine])).any()) for (t,) in db.execute(taken, (thread,)))
    table = p.idle(by="thread")
    ours = {s["thread"]: s for s in table.summary["threads"]}
    assert table.rows["total_ns"].sum() == p.breakdown().rows["idle_ns"][0]
    assert ours["running"]["total_ns"] == pytest.approx(on_cpu, abs=1)
    waiting = ours["blocked"]["total_ns"] + ours["descheduled"]["total_ns"]
    assert waiting == pytest.approx((end - start).sum() - on_cpu, abs=1)
    # Samples within calls are not needed: calls are known exactly.
    assert 0 < ours["running"]["samples"] <= hits
    assert max(("running", "blocked", "descheduled"), key=lambda s: ours[s]["total_ns"]) == most
    assert doing is None or table.rows["doing"][0] == doing

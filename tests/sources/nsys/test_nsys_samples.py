"""Samples and scheduling of nsys: rows of threads of the ranks, and the stretches in which they had no CPU."""

from __future__ import annotations

import json

import pytest
from nsys_files import KERNEL, NVTX, RUNTIME, call, global_id, kernel, range_, strings, texts, write

from stepscope.sources.nsys import open_sqlite

TEXTS = strings("gemm", "cudaLaunchKernel", "malloc", "/lib/libc.so.6", "forward", "/me/net.py", "loop", "/me/a.out")
REASONS = [{"id": 0, "label": "NonBlocked"}, {"id": 6, "label": "Mutex"}]


def switch(
    at: int, got: int, tid: int = 7, pid: int = 7, state: int = 0, block: int | None = None
) -> dict[str, object]:
    thread = global_id(pid, tid)
    return {"start": at, "cpu": 3, "isSchedIn": got, "globalTid": thread, "threadState": state, "threadBlock": block}


def sampled(number: int, at: int, tid: int = 7, pid: int = 7) -> dict[str, object]:
    return {"id": number, "start": at, "cpu": 1, "threadState": 1, "globalTid": global_id(pid, tid), "cpuCycles": 1}


def frame(number: int, depth: int, symbol: int, module: int) -> dict[str, object]:
    return {"id": number, "symbol": symbol, "module": module, "stackDepth": depth}


def file(tmp_path, **more):
    tables = {
        "StringIds": TEXTS,
        KERNEL: [kernel(110, 120, correlationId=1)],
        RUNTIME: [call(100, 105, correlationId=1), call(900, 905, correlationId=9)],
        "ANALYSIS_DETAILS": [{"globalVid": 0, "duration": 1000, "startTime": 0, "stopTime": 1000}],
    }
    return write(tmp_path / "t.sqlite", {**tables, **more})


def test_samples_have_their_innermost_frame(tmp_path):
    payload = {"Thread state": "Running", "Frames count": 1, "Frames": [{"Function": 5, "File": 6, "Line": 12}]}
    mark = range_(40, None, None, eventType=34, domainId=1)
    path = file(
        tmp_path,
        COMPOSITE_EVENTS=[sampled(1, 30), sampled(2, 20, tid=8), sampled(3, 50, pid=99), sampled(4, 60)],
        SAMPLING_CALLCHAINS=[frame(1, 0, 3, 4), frame(1, 1, 7, 8), frame(2, 0, 7, 8), frame(3, 0, 3, 4)],
        **{
            NVTX: [
                range_(-5, None, "Python Periodic Sampling", eventType=75, domainId=1) | {"jsonText": None},
                mark | {"jsonText": json.dumps({"Python Periodic Sampling": payload})},
            ]
        },
    )
    source = open_sqlite(path)
    assert {"samples", "stacks"} <= source.tables()
    rows = texts(source, "samples").select("start_ns", "tid", "kind", "name", "file", "line").rows()
    assert rows == [
        (20, 8, "native", "loop", "/me/a.out", None),
        (30, 7, "native", "malloc", "/lib/libc.so.6", None),
        (40, 7, "python", "forward", "/me/net.py", 12),
        (60, 7, "native", None, None, None),  # nsys kept no frame of it
    ]
    chain = source.read("samples", "detail").frame["chain"].to_list()
    assert chain == [None, None, -1, None] and texts(source, "stacks")["name"].to_list() == ["forward"]


@pytest.mark.parametrize("states", [True, False])
def test_stretches_without_a_cpu(tmp_path, states):
    """Exports before schema 3.13 do not say why a thread lost its CPU."""
    events = [
        switch(100, 1), switch(150, 0, state=2, block=6), switch(200, 1), switch(260, 0, state=1), switch(300, 1),
        switch(10, 0, tid=8), switch(12, 0, tid=8, state=3), switch(15, 1, tid=8), switch(5, 1, pid=99),
        switch(400, 0),
    ]  # fmt: skip
    if not states:
        events = [{k: v for k, v in e.items() if not k.startswith("thread")} for e in events]
    source = open_sqlite(file(tmp_path, SCHED_EVENTS=events, ENUM_SCHEDULING_THREAD_BLOCK=REASONS))
    rows = texts(source, "off_cpu").select("tid", "start_ns", "end_ns", "state", "reason").rows()
    states_seen = ["unknown", "waiting", "waiting", "runnable", "unknown"] if states else ["unknown"] * 5
    spans = [(7, 0, 100), (8, 12, 15), (7, 150, 200), (7, 260, 300), (7, 400, 1000)]
    reasons = [None, None, "Mutex" if states else None, None, None]
    assert rows == [(*span, state, r) for span, state, r in zip(spans, states_seen, reasons, strict=True)]

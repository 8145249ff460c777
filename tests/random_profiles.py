"""Small random profiles, and what each question means on them, nanosecond by nanosecond."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from fake import call, comm, copy, nvtx, op

Tables = dict[str, list[dict[str, Any]]]

CALLS = {
    "cudaStreamSynchronize": "sync",
    "cudaMemcpy": "sync",
    "cudaMalloc": "alloc",
    "cuModuleLoadData": "load",
    "cudaEventQuery": "api",
    "cudaLaunchKernel": "api",
}


@st.composite
def profiles(draw: st.DrawFn) -> Tables:
    """Ops of every role on three streams, most of them launched, among nested calls of two threads; stage ranges."""
    ops, calls = [], []
    for i in range(1, draw(st.integers(1, 9)) + 1):
        called = draw(st.integers(0, 40))
        start = called + draw(st.integers(0, 25))
        maker = draw(st.sampled_from([op, op, comm, comm, copy]))
        linked = draw(st.integers(0, 5)) > 0
        stream = draw(st.sampled_from([7, 9, 11]))
        ops.append(maker(start, start + draw(st.integers(1, 12)), stream=stream, call=i if linked else None))
        if linked:
            calls.append(call(called, called + draw(st.integers(1, 4)), i, tid=draw(st.integers(1, 2))))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, 60))
        name = draw(st.sampled_from(sorted(CALLS)))
        calls.append(call(start, start + draw(st.integers(1, 20)), None, name, tid=draw(st.integers(1, 2))))
    ranges = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, 40))
        text = draw(st.sampled_from(["layer00.stage1_f", "layer01.stage2_b", "other", "pipeline send/recv"]))
        ranges.append(nvtx(start, start + draw(st.integers(1, 30)), text, tid=draw(st.integers(1, 2))))
    calls.sort(key=lambda c: (c["start_ns"], c["end_ns"]))
    ops.sort(key=lambda o: (o["start_ns"], o["end_ns"]))
    return {"ops": ops, "calls": calls, "ranges": ranges}


def role(o: dict[str, Any]) -> str:
    return "comm" if "nccl" in o["name"] else "copy" if o["kind"] == "memset" else "compute"


def running(ops: list[dict[str, Any]], t: int) -> set[str]:
    """Roles of what runs at `t`."""
    return {role(o) for o in ops if o["start_ns"] <= t < o["end_ns"]}


def part(ops: list[dict[str, Any]], t: int) -> str:
    """Which of the four parts an instant belongs to (semantics §6)."""
    now = running(ops, t)
    return next((p for p in ("compute", "comm", "copy") if p in now), "idle")


def cause(tables: Tables, t: int, end: int) -> str:
    """Why the GPU is idle at `t`, in a window that ends at `end` (semantics §6)."""
    ops, calls = tables["ops"], tables["calls"]
    g1 = next((u for u in range(t, end) if part(ops, u) != "idle"), end)
    after = [o for o in ops if o["start_ns"] >= g1]
    if not after:
        return "tail"
    launch = [c for c in calls if c["correlation"] is not None and c["correlation"] == after[0]["correlation"]]
    if not launch:
        return "unlinked"
    if t >= launch[0]["start_ns"]:
        return "queue"
    around = [
        (c["start_ns"], -c["end_ns"], i)
        for i, c in enumerate(calls)
        if c["tid"] == launch[0]["tid"] and c["start_ns"] <= t < c["end_ns"]
    ]
    return CALLS[calls[max(around)[2]]["name"]] if around else "host"

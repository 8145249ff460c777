"""What the Kineto writer writes, read back with `json` alone."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_trace import A2A, CHUNK, EPOCHS, GEMM, REDUCE, label, table, tiny

from stepscope.simulate.kineto import write as write_kineto
from stepscope.simulate.trace.hostlinks import innermost
from stepscope.simulate.trace.trace import SimCalls, SimEvents, SimGroup, SimOps, SimRanges, SimSyncs, SimTrace

T = 1_000_010  # where rank 1's timeline begins


@pytest.fixture
def trace() -> SimTrace:
    return tiny()


@pytest.fixture
def kineto(trace: SimTrace, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "rank1.pt.trace.json.gz"
    write_kineto.write(trace, 1, path)
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return found


def of(kineto: dict[str, Any], cat: str, **args: object) -> list[dict[str, Any]]:
    """Events of a category whose arguments include `args`."""
    return [
        e
        for e in kineto["traceEvents"]
        if e.get("cat") == cat and all(e.get("args", {}).get(k) == v for k, v in args.items())
    ]


def interval(kineto: dict[str, Any], event: dict[str, Any]) -> tuple[int, int]:
    """Start and end of an event on the clock of the trace, exactly."""
    start = kineto["baseTimeNanoseconds"] + event["ts"] * 1000 - EPOCHS[0]
    assert start == int(start)
    return int(start), int(start + event["dur"] * 1000)


def test_gpu_work_comes_back_to_the_nanosecond(trace: SimTrace, kineto: dict[str, Any]) -> None:
    ops, found = trace.ops, {}
    for cat in ("kernel", "gpu_memcpy", "gpu_memset"):
        for event in of(kineto, cat):
            args = event["args"]
            assert (event["pid"], event["tid"]) == (args["device"], args["stream"])
            found[args["correlation"]] = (*interval(kineto, event), args["stream"], cat)
    expected = {
        c: (s, e, stream, ("kernel", "gpu_memcpy", "gpu_memset")[kind])
        for r, c, s, e, stream, kind in zip(
            ops.rank, ops.correlation, ops.start, ops.end, ops.stream, ops.kind, strict=True
        )
        if r == 1
    }
    assert found == expected


def test_a_double_is_enough_to_read_a_time(trace: SimTrace, tmp_path: Path) -> None:
    # The last nanosecond before Kineto moves its base: microseconds are then at their largest.
    trace.epoch_ns[0] = 228 * 7_889_238 * 10**9 - 10**9
    trace.ops.start += 900_000_000
    write_kineto.write(trace, 0, tmp_path / "a.json")
    kineto = json.loads((tmp_path / "a.json").read_text())
    kernels = of(kineto, "kernel")
    starts = [kineto["baseTimeNanoseconds"] + round(e["ts"] * 1000) - trace.epoch_ns[0] for e in kernels]
    assert starts == trace.ops.start[(trace.ops.rank == 0) & (trace.ops.kind == 0)].tolist()


def test_calls_and_flows_lead_from_launch_to_work(kineto: dict[str, Any]) -> None:
    (launch,) = of(kineto, "cuda_runtime", correlation=11)
    assert launch["name"] == "cudaLaunchKernel"
    assert interval(kineto, launch) == (T + 101, T + 152)
    assert [e["name"] for e in of(kineto, "cuda_driver")] == ["cuLaunchKernelEx"] * 3
    flows = {(e["ph"], e["id"]): e for e in of(kineto, "ac2g")}
    assert sorted(flows) == [(ph, c) for ph in "fs" for c in (11, 14, 15, 16, 17, 18)]
    assert flows["s", 11]["ts"] == launch["ts"]
    assert (flows["s", 11]["pid"], flows["f", 11]["pid"], flows["f", 11]["tid"]) == (301, 1, 7)


def test_annotations_on_host_and_on_streams(kineto: dict[str, Any]) -> None:
    found = {e["name"]: interval(kineto, e) for e in of(kineto, "user_annotation")}
    assert found == {
        label(1): (T - 1_000, T + 13_345),
        CHUNK: (T, T + 9_000),
        "layer00.stage1_f": (T + 50, T + 501),
        "layer00.stage2_f": (T + 600, T + 1_500),
        "nccl:all_to_all": (T + 700, T + 1_201),
        "nccl:coalesced": (T + 2_060, T + 2_500),
        "nccl:all_reduce": (T + 3_000, T + 3_400),
    }
    ids = {e["args"]["External id"]: e["name"] for e in of(kineto, "user_annotation")}
    shown = {(e["name"], e["tid"]): interval(kineto, e) for e in of(kineto, "gpu_user_annotation")}
    # The chunk launched a copy and a memset itself; what its stages launched is theirs.
    assert shown == {
        ("layer00.stage1_f", 7): (T + 3_000, T + 7_001),
        ("nccl:all_to_all", 21): (T + 7_001, T + 9_333),
        ("nccl:coalesced", 17): (T + 7_500, T + 8_200),
        ("nccl:all_reduce", 7): (T + 9_400, T + 9_999),
        (CHUNK, 13): (T + 10_001, T + 10_500),
        (CHUNK, 7): (T + 10_600, T + 10_610),
    }
    assert all(ids[e["args"]["External id"]] == e["name"] for e in of(kineto, "gpu_user_annotation"))


def test_collectives_are_described(kineto: dict[str, Any]) -> None:
    operators = {e["args"]["External id"]: e for e in of(kineto, "cpu_op")}
    assert [e["args"]["Collective name"] for e in operators.values()] == ["all_to_allv", "send", "recv", "allreduce"]
    (a2a,) = of(kineto, "kernel", correlation=14)
    host = operators[a2a["args"]["External id"]]
    assert host["name"] == "record_param_comms"
    expected = {
        "Collective name": "all_to_allv",
        # 1 MiB to each of two peers, as two-byte elements.
        "In msg nelems": 1_048_576,
        "Out msg nelems": 1_048_576,
        "Group size": 2,
        "dtype": "BFloat16",
        "Process Group Name": "1",
        "Process Group Description": "mesh_ep",
        "Process Group Ranks": "[0, 1]",
    }
    for args in (a2a["args"], host["args"]):
        assert {k: args[k] for k in expected} == expected
    assert host["args"]["Rank"] == 1
    (reduce,) = of(kineto, "kernel", correlation=16)
    assert (reduce["name"], reduce["args"]["dtype"], reduce["args"]["In msg nelems"]) == (REDUCE, "Float", 1_000)
    assert reduce["args"]["Process Group Name"] == "0"
    # PyTorch knows nothing of a kernel that a group launched, and puts the peer under "Rank".
    (grouped,) = of(kineto, "kernel", correlation=15)
    assert grouped["name"] == A2A and not {"Collective name", "External id"} & set(grouped["args"])
    send = next(e for e in operators.values() if e["args"]["Collective name"] == "send")
    assert (send["args"]["Rank"], send["args"]["Dst Rank"], send["args"]["In msg nelems"]) == (0, 0, 3_145_728)


def test_collectives_without_nccl_ranges_and_in_wide_groups(trace: SimTrace, tmp_path: Path) -> None:
    keep = trace.ranges.domain == 0
    trace.ranges = SimRanges(**{k: v[keep] for k, v in vars(trace.ranges).items()})
    trace.groups[0] = SimGroup(7, "world", tuple(range(64)))
    write_kineto.write(trace, 0, tmp_path / "a.json")
    kineto = json.loads((tmp_path / "a.json").read_text())
    (reduce,) = of(kineto, "kernel", correlation=16)
    assert reduce["args"]["Collective name"] == "allreduce"
    assert reduce["args"]["Process Group Ranks"].endswith("28, 29, ...]")
    (send,) = of(kineto, "kernel", correlation=15)
    assert (send["args"]["Collective name"], send["args"]["Dst Rank"]) == ("send", 1)
    assert kineto["distributedInfo"]["pg_config"][0]["ranks"] == list(range(64))


def test_waits(kineto: dict[str, Any]) -> None:
    found = {e["args"]["correlation"]: e for e in of(kineto, "cuda_sync")}
    names = {c: e["args"]["cuda_sync_kind"] for c, e in found.items()}
    assert names == {13: "Stream Wait Event", 19: "Stream Sync", 20: "Event Sync", 21: "Context Sync"}
    assert interval(kineto, found[21]) == (T + 11_300, T + 12_345)
    wait = found[13]["args"]
    assert (wait["stream"], wait["wait_on_stream"], wait["wait_on_cuda_event_record_corr_id"]) == (21, 7, 12)
    assert "wait_on_stream" not in found[19]["args"]
    assert found[21]["args"]["stream"] == -1


def test_the_head_of_the_file(kineto: dict[str, Any]) -> None:
    info = kineto["distributedInfo"]
    assert (info["rank"], info["world_size"], info["pg_count"], info["backend"]) == (1, 3, 2, "nccl")
    assert [(g["pg_name"], g["pg_desc"], g["ranks"]) for g in info["pg_config"]] == [
        ("0", "default_pg", [0, 1, 2]),
        ("1", "mesh_ep", [0, 1]),
    ]
    assert kineto["schemaVersion"] == 1
    assert [d["id"] for d in kineto["deviceProperties"]] == [0, 1]
    (name,) = [e for e in kineto["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 301]
    assert name["args"]["name"] == "thread 301 (python)"


def test_part_of_a_job_knows_the_whole(trace: SimTrace, tmp_path: Path) -> None:
    trace.ranks = trace.ranks[:2]
    write_kineto.write(trace, 0, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["distributedInfo"]["world_size"] == 3


def test_names_survive_quoting(kineto: dict[str, Any]) -> None:
    assert of(kineto, "kernel", correlation=11)[0]["name"] == GEMM


def test_same_trace_same_bytes(trace: SimTrace, tmp_path: Path) -> None:
    write_kineto.write(trace, 0, tmp_path / "a.json.gz")
    write_kineto.write(tiny(), 0, tmp_path / "b.json.gz")
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    write_kineto.write(trace, 0, tmp_path / "c.json")
    assert gzip.decompress(packed) == (tmp_path / "c.json").read_bytes()
    with pytest.raises(ValueError, match="rank 9"):
        write_kineto.write(trace, 9, tmp_path / "d.json")
    assert len(list(tmp_path.iterdir())) == 3


def test_an_empty_rank_is_still_valid(trace: SimTrace, tmp_path: Path) -> None:
    trace.ops, trace.calls, trace.ranges = table(SimOps, []), table(SimCalls, []), table(SimRanges, [])
    trace.syncs, trace.events = table(SimSyncs, []), table(SimEvents, [])
    write_kineto.write(trace, 2, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["distributedInfo"]["rank"] == 2


def test_innermost_against_a_plain_search() -> None:
    rng = np.random.default_rng(3)
    start, end, tid = [], [], []
    for thread in (1, 2):
        stack = [(0, 1_000)]
        while stack:
            low, high = stack.pop()
            start.append(low)
            end.append(high)
            tid.append(thread)
            if high - low > 20:
                cuts = sorted(rng.integers(low, high, 4).tolist())
                stack += [(cuts[0], cuts[1]), (cuts[2], cuts[3])]
    columns = np.array(start), np.array(end), np.array(tid, dtype=np.int32)
    when, thread_of = rng.integers(-5, 1_010, 500), rng.integers(1, 4, 500).astype(np.int32)
    found = innermost(*columns, when, thread_of)
    for t, thread, row in zip(when.tolist(), thread_of.tolist(), found.tolist(), strict=True):
        lengths = [e - s for s, e, i in zip(start, end, tid, strict=True) if i == thread and s <= t < e]
        assert (end[row] - start[row] == min(lengths)) if lengths else row == -1

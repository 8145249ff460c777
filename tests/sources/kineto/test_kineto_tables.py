"""Each kind of event lands in its table, under the names of old and new versions, CUDA and ROCm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_files import event, kernel, rows, source

from stepscope.model.schema import TABLES
from stepscope.sources.kineto.gpu import copy_of


@pytest.mark.parametrize(
    ("category", "table", "kind"),
    [
        ("kernel", "ops", "kernel"),
        ("Kernel", "ops", "kernel"),
        ("gpu_memcpy", "ops", "memcpy"),
        ("Memcpy", "ops", "memcpy"),
        ("gpu_memset", "ops", "memset"),
        ("Memset", "ops", "memset"),
        ("cuda_runtime", "calls", None),
        ("Runtime", "calls", None),
        ("hip_runtime", "calls", None),
        ("cuda_driver", "calls", None),
        ("user_annotation", "ranges", "pushpop"),
        ("cpu_op", "host", "cpu_op"),
        ("Operator", "host", "cpu_op"),
        ("python_function", "host", "python"),
        ("overhead", "host", "other"),
        ("cuda_sync", "syncs", "unknown"),
    ],
)
def test_categories(tmp_path: Path, category: str, table: str, kind: str | None) -> None:
    found = source(tmp_path, [event(category, "x", 1)])
    assert found.tables() == {table}
    (row,) = rows(found, table)
    assert row.get("kind") == kind
    assert (row["proc"], row["start_ns"], row["end_ns"]) == (0, 1000, 2000)


def test_what_is_no_activity_is_left_out(tmp_path: Path) -> None:
    noise = [
        event("gpu_user_annotation", "step", 1),
        event("Trace", "PyTorch Profiler (0)", 1, pid="Spans", tid="PyTorch Profiler"),
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
    ]
    found = source(tmp_path, [kernel("k", 1), *noise, event("made_up", "x", 1)])
    assert found.tables() == {"ops"}
    assert found.quality.notes == ["1 events of the unknown category 'made_up' left out"]


def test_a_kernel_in_full(tmp_path: Path) -> None:
    args = {
        "device": 1,
        "context": 2,
        "stream": 20,
        "correlation": 33,
        "External id": 44,
        "registers per thread": 96,
        "shared memory": 1024,
        "grid": [5, 6, 7],
        "block": [32, 2, 1],
        "est. achieved occupancy %": 75,
        "graph id": 3,
        "graph node id": 9,
    }
    found = source(tmp_path, [kernel("void k<4>(int)", 1, **args)])
    (core,) = rows(found, "ops")
    assert core | {"name": "void k<4>(int)", "device": 1, "stream": 20, "correlation": 33, "bytes": None} == core
    (detail,) = rows(found, "ops", detail=True)
    expected = {
        "context": 2,
        "external_id": 44,
        "registers": 96,
        "smem_dynamic": 1024,
        "grid_x": 5,
        "grid_y": 6,
        "grid_z": 7,
        "block_x": 32,
        "block_y": 2,
        "block_z": 1,
        "occupancy_pct": 75.0,
        "graph_node": 9,
    }
    assert detail | expected == detail


def test_ids_of_zero_are_none(tmp_path: Path) -> None:
    """Outside graphs the node is 0; an activity that nothing launched has correlation 0."""
    found = source(tmp_path, [kernel("k", 1, **{"correlation": 0, "graph node id": 0})])
    assert rows(found, "ops")[0]["correlation"] is None
    assert rows(found, "ops", detail=True)[0]["graph_node"] is None


def test_rocm_kernels_have_little(tmp_path: Path) -> None:
    """Stream 0 is a stream, and a grid is there for some kernels only."""
    with_grid = kernel("a", 1, stream=0, device=2, grid=[4, 1, 1], block=[64, 1, 1])
    found = source(tmp_path, [with_grid, kernel("b", 3, stream=0, device=2)])
    assert [(r["stream"], r["device"]) for r in rows(found, "ops")] == [(0, 2), (0, 2)]
    assert [r["grid_x"] for r in rows(found, "ops", detail=True)] == [4, None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pinned -> Device)", ("HtoD", "pinned", "device")),
        ("Memcpy DtoH (Device -> Pageable)", ("DtoH", "device", "pageable")),
        ("Memcpy PtoP (Device -> Device)", ("PtoP", "device", "device")),
        ("Memcpy HtoA (Pageable -> Array)", ("array", "pageable", "array")),
        ("Memcpy <unknown> (Unknown -> Unknown)", ("unknown", "unknown", "unknown")),
        ("CopyDeviceToHost", ("DtoH", "unknown", "unknown")),
    ],
)
def test_copies(tmp_path: Path, name: str, expected: tuple[str, str, str]) -> None:
    assert copy_of(name) == expected
    found = source(tmp_path, [event("gpu_memcpy", name, 1, pid=3, tid=5, bytes=64, fromDevice=0, toDevice=1)])
    (row,), (detail,) = rows(found, "ops"), rows(found, "ops", detail=True)
    assert (row["name"], row["copy_kind"]) == (f"[memcpy {expected[0]}]", expected[0])
    assert (row["bytes"], row["device"], row["stream"]) == (64, 3, 5)
    assert (detail["src_kind"], detail["dst_kind"]) == expected[1:]
    assert (detail["src_device"], detail["dst_device"]) == (0, 1)


def test_memset(tmp_path: Path) -> None:
    found = source(tmp_path, [event("gpu_memset", "Memset (Device)", 1, bytes=4)])
    assert rows(found, "ops")[0]["name"] == "[memset]"
    assert rows(found, "ops", detail=True)[0]["src_kind"] == "device"


def test_calls(tmp_path: Path) -> None:
    found = source(
        tmp_path,
        [
            event("cuda_runtime", "cudaLaunchKernel_v7000", 1, tid=2**32 - 5, correlation=3, **{"External id": 8}),
            event("cuda_driver", "cuMemcpyHtoDAsync_v2_ptsz", 2, tid="12", correlation=4),
        ],
    )
    core, detail = rows(found, "calls"), rows(found, "calls", detail=True)
    assert [r["name"] for r in core] == ["cudaLaunchKernel", "cuMemcpyHtoDAsync"]
    assert [r["raw_name"] for r in core] == ["cudaLaunchKernel_v7000", "cuMemcpyHtoDAsync_v2_ptsz"]
    assert [r["tid"] for r in core] == [-5, 12]
    assert [r["correlation"] for r in core] == [3, 4]
    assert [(r["api"], r["external_id"]) for r in detail] == [("runtime", 8), ("driver", None)]


def test_ranges(tmp_path: Path) -> None:
    found = source(
        tmp_path,
        [
            event("user_annotation", "ProfilerStep#3", 1, 9),
            event("user_annotation", "nccl:all_reduce", 2),
            event("user_annotation", "open", 4, finished=False),
        ],
    )
    assert [(r["name"], r["domain"], r["closed"]) for r in rows(found, "ranges")] == [
        ("ProfilerStep#3", None, True),
        ("nccl:all_reduce", "NCCL", True),
        ("open", None, False),
    ]


@pytest.mark.parametrize("category", ["cpu_op", "Operator"])
def test_steps_among_the_operators(tmp_path: Path, category: str) -> None:
    """As torch 1.8 wrote them."""
    found = source(tmp_path, [event(category, "aten::mm", 2), event(category, "ProfilerStep#3", 1, 9)])
    assert [(r["name"], r["start_ns"], r["end_ns"]) for r in rows(found, "ranges")] == [("ProfilerStep#3", 1000, 10000)]
    assert [r["name"] for r in rows(found, "host")] == ["aten::mm"]


def test_host(tmp_path: Path) -> None:
    op = {"External id": 5, "Sequence number": 6, "Fwd thread id": 1, "Input Dims": [[2, 3], []]}
    events = [
        event("cpu_op", "aten::mm", 1, **op),
        event("python_function", "f.py(1): g", 2, **{"Python id": 4, "Python parent id": None}),
        event("cpu_op", "Torch-Compiled Region: 0/0", 3),
        event("cpu_op", "TorchDynamo Cache Lookup", 4),
        event("python_function", "Python GC", 5),
    ]
    found = source(tmp_path, events)
    assert [r["kind"] for r in rows(found, "host")] == ["cpu_op", "python", "compile", "compile", "gc"]
    mm, python, *_ = rows(found, "host", detail=True)
    assert (mm["external_id"], mm["sequence"], mm["fwd_tid"], mm["shapes"]) == (5, 6, 1, "[[2, 3], []]")
    assert (python["python_id"], python["python_parent"], python["shapes"]) == (4, None, None)


def test_counters(tmp_path: Path) -> None:
    memory = {"Total Allocated": 100, "Total Reserved": 200, "Device Id": 0, "Device Type": 1}
    on_host = {"Total Allocated": 7, "Total Reserved": 0, "Device Id": -1, "Device Type": 0}

    def instant(ts: float, args: dict[str, Any]) -> dict[str, Any]:
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7, "ts": ts, "args": args}

    found = source(
        tmp_path,
        [
            {"ph": "C", "name": "GPU util", "pid": 7, "ts": 1, "args": {"value": 0.5}},
            {"ph": "C", "name": "net", "pid": 7, "ts": 2, "args": {"in": 3, "out": 4, "text": "x"}},
            instant(5, memory),
            instant(6, on_host),
            instant(7, {}) | {"name": "something else"},
        ],
    )
    assert [(r["start_ns"], r["name"], r["value"], r["device"]) for r in rows(found, "counters")] == [
        (1000, "GPU util", 0.5, None),
        (2000, "net in", 3.0, None),
        (2000, "net out", 4.0, None),
        (5000, "memory allocated", 100.0, 0),
        (5000, "memory reserved", 200.0, 0),
        (6000, "host memory allocated", 7.0, None),
    ]


def test_syncs_are_told_at_the_times_of_the_host(tmp_path: Path) -> None:
    wait = {"stream": 20, "correlation": 12, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11}
    events = [
        event("cuda_runtime", "cudaEventRecord", 1, correlation=11),
        event("cuda_runtime", "cudaStreamWaitEvent", 3, correlation=12),
        event("cuda_runtime", "cudaDeviceSynchronize", 5, correlation=13),
        event("cuda_sync", "Stream Wait Event", 3.5, 0.1, pid=0, tid=20, **wait),
        event("cuda_sync", "Context Sync", 5.5, 0.1, pid=0, tid=-1, stream=-1, correlation=13),
    ]
    expected = [
        ("record", 7, 1000, 2000, 11),
        ("stream_wait", 20, 3000, 4000, 11),
        ("context_sync", -1, 5000, 6000, None),
    ]
    assert _syncs(tmp_path, events) == expected
    # New versions write the records themselves, with times that mean nothing.
    record = event("cuda_event", "cudaEvent", -4e12, 0.001, pid=0, tid=7, stream=7, correlation=11, event_id=5)
    assert _syncs(tmp_path, [*events, record]) == expected


def _syncs(folder: Path, events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    columns = ("kind", "stream", "start_ns", "end_ns", "event")
    return [tuple(row[c] for c in columns) for row in rows(source(folder, events), "syncs")]


def test_parts_have_the_columns_and_the_order_of_the_model(tmp_path: Path) -> None:
    events = [kernel("late", 9), kernel("early", 1), event("gpu_memset", "Memset (Device)", 5, pid=0)]
    found = source(tmp_path, events)
    core, detail = found.read("ops"), found.read("ops", "detail")
    assert dict(core.frame.schema) == TABLES["ops"].part("core")
    assert dict(detail.frame.schema) == TABLES["ops"].part("detail")
    launch = found.read("ops", "launch").frame
    assert "grid_x" in launch.columns
    assert launch.equals(detail.frame.select(list(TABLES["ops"].part("launch"))))
    assert core.frame["start_ns"].to_list() == detail.frame["start_ns"].to_list() == [1000, 5000, 9000]
    assert core.names.to_list() == ["late", "early", "[memset]"]
    for table in TABLES:
        assert dict(found.read(table).frame.schema) == TABLES[table].part("core")

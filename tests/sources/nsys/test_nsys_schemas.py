"""One tiny file per difference between exports."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from nsys_files import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    NONE,
    NVTX,
    RECORD,
    RUNTIME,
    SYNC,
    call,
    global_id,
    kernel,
    range_,
    strings,
    texts,
    write,
)

from stepscope.sources.nsys import open_sqlite

NAMES = strings("gemm", "cudaLaunchKernel_ptsz_v7000", "cuLaunchKernelEx", "step", "ncclAllReduce")


def test_the_smallest_export(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", {"StringIds": NAMES, KERNEL: [kernel(10, 20)], RUNTIME: [call(5, 6)]})
    source = open_sqlite(path)
    assert source.info.schema is None
    assert source.info.tool is None
    assert source.tables() == {"ops", "calls"}
    assert source.processes().row(0, named=True) == {
        "proc": 0,
        "pid": 7,
        "host": None,
        "device": 0,
        "gpu": None,
        "gpu_id": None,
        "rank": None,
        "rank_from": None,
        "setup": None,
        "world_size": None,
        "devices": None,
    }
    assert texts(source, "ops").row(0, named=True) == {
        "proc": 0,
        "kind": "kernel",
        "name": "gemm",
        "device": 0,
        "stream": 7,
        "start_ns": 10,
        "end_ns": 20,
        "correlation": 10,
        "bytes": None,
        "copy_kind": "none",
    }
    calls = texts(source, "calls")
    assert calls["name"].to_list() == ["cudaLaunchKernel"]
    assert calls["raw_name"].to_list() == ["cudaLaunchKernel_ptsz_v7000"]
    assert source.read("ranges").frame.is_empty()


def test_metadata_under_its_old_name(tmp_path: Path) -> None:
    meta = [{"name": "EXPORT_SCHEMA_VERSION", "value": "2.7.0"}, {"name": "EXPORT_PRODUCT_VERSION", "value": "2021.5"}]
    source = open_sqlite(write(tmp_path / "a.sqlite", {"EXPORT_META_DATA": meta, KERNEL: [kernel(1, 2)]}))
    assert (source.info.schema, source.info.tool) == ("2.7.0", "2021.5")


def test_clock_and_length(tmp_path: Path) -> None:
    tables = {
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_001}],
        "ANALYSIS_DETAILS": [{"duration": 500, "startTime": 90, "stopTime": 590}],
        KERNEL: [kernel(1, 2)],
    }
    info = open_sqlite(write(tmp_path / "a.sqlite", tables)).info
    assert (info.epoch_ns, info.capture_ns) == (1_700_000_000_000_000_001, 500)


def test_none_in_unsigned_columns(tmp_path: Path) -> None:
    rows = [kernel(1, 2, streamId=NONE, correlationId=0, contextId=NONE), kernel(3, 4, streamId=None, contextId=1)]
    rows[1]["streamId"] = None
    rows = [{**row, "deviceId": device} for row, device in zip(rows, (NONE, 1), strict=True)]
    source = open_sqlite(write(tmp_path / "a.sqlite", {KERNEL: rows}))
    assert source.processes()["device"].to_list() == [1]
    frame = source.read("ops").frame
    assert frame["stream"].to_list() == [None, None]  # the door takes -1, and says so
    assert frame["device"].to_list() == [None, 1]
    assert frame["correlation"].to_list() == [None, 3]


def test_every_kind_of_operation(tmp_path: Path) -> None:
    place = {"start": 0, "end": 1, "deviceId": 0, "streamId": 7, "correlationId": 1, "globalPid": global_id(7)}
    copies = [
        {**place, "start": at, "bytes": 100 + at, "copyKind": code, "srcKind": 0, "dstKind": 2}
        for at, code in enumerate((1, 2, 8, 10, 9, 11, 4, 0, 99))
    ]
    tables = {
        "StringIds": NAMES,
        MEMCPY: copies,
        MEMSET: [{**place, "start": 50, "bytes": 4, "memKind": 4}],
        GRAPH: [{**place, "start": 60, "graphId": 3, "graphExecId": 5}],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    frame = texts(source, "ops")
    kinds = ["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unified", "array", "unknown", "unknown"]
    assert frame["copy_kind"].to_list() == [*kinds, "none", "none"]
    assert frame["name"].to_list() == [*(f"[memcpy {kind}]" for kind in kinds), "[memset]", "[graph 3]"]
    assert frame["kind"].to_list() == [*["memcpy"] * 9, "memset", "graph"]
    assert frame["bytes"].to_list() == [*range(100, 109), 4, None]
    detail = source.read("ops", "detail").frame
    assert detail["src_kind"].to_list() == [*["pageable"] * 9, "managed", "none"]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    tables = {
        "StringIds": strings(b"gemm\xff\xfe"),
        KERNEL: [kernel(1, 2)],
        NVTX: [range_(1, 2, b"st\xe9p"), range_(3, 4, b"step")],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    assert texts(source, "ops")["name"].to_list() == ["gemm\ufffd\ufffd"]
    assert texts(source, "ranges")["name"].to_list() == ["st\ufffdp", "step"]


def test_ends_of_ranges(tmp_path: Path) -> None:
    tables = {
        "ANALYSIS_DETAILS": [{"duration": 100}],
        NVTX: [
            range_(10, 20, "closed"),
            range_(30, None, "open, no end"),
            range_(40, 100, "open, end of capture"),
            range_(50, None, "mark", eventType=34),
            range_(60, 70, "start/end", eventType=60),
            range_(65, None, "thread name", eventType=39),
        ],
    }
    frame = texts(open_sqlite(write(tmp_path / "a.sqlite", tables)), "ranges").select(
        "name", "end_ns", "closed", "kind"
    )
    assert frame.rows() == [
        ("closed", 20, True, "pushpop"),
        ("open, no end", 100, False, "pushpop"),
        ("open, end of capture", 100, False, "pushpop"),
        ("mark", 50, True, "mark"),
        ("start/end", 70, True, "startend"),
    ]


def test_without_a_length_the_capture_ends_with_its_last_record(tmp_path: Path) -> None:
    tables = {KERNEL: [kernel(1, 77)], NVTX: [range_(10, None, "open"), range_(11, 60, "closed")]}
    frame = texts(open_sqlite(write(tmp_path / "a.sqlite", tables)), "ranges")
    assert frame.select("end_ns", "closed").rows() == [(77, False), (60, True)]


def test_what_began_before_the_capture_is_left_out_and_counted(tmp_path: Path) -> None:
    tables = {
        KERNEL: [kernel(10, 20)],
        RUNTIME: [call(-5, 3), call(6, 7)],
        NVTX: [range_(-9, 50, "rank=3; pp=1/2 tp=0/4; mbs=1"), range_(-4, 5, "warmup"), range_(1, 2, "step")],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    assert source.processes().select("rank", "rank_from", "setup").row(0) == (
        3,
        "setup label",
        "rank=3; pp=1/2 tp=0/4; mbs=1",
    )
    assert texts(source, "ranges")["name"].to_list() == ["step"]
    assert source.read("calls").frame["start_ns"].to_list() == [6]
    assert "NVTX_EVENTS: left out 2 rows that started before the capture" in source.quality.notes
    assert "CUPTI_ACTIVITY_KIND_RUNTIME: left out 1 row that started before the capture" in source.quality.notes


def test_a_registered_setup_label_of_a_rank_without_gpu_work(tmp_path: Path) -> None:
    tables = {
        "StringIds": strings("gemm", "rank=5; pp=0/1; mbs=2 seq=8"),
        KERNEL: [kernel(10, 20, pid=7)],
        NVTX: [range_(1, 2, None, pid=8, textId=2)],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    assert source.processes().select("pid", "rank", "device").rows() == [(7, None, 0), (8, 5, None)]
    assert source.read("ranges", "detail").frame["registered"].to_list() == [True]


def test_processes_are_told_apart_by_all_upper_bits(tmp_path: Path) -> None:
    rows = [kernel(1, 2), kernel(3, 4)]
    rows[1]["globalPid"] = global_id(7, vm=2)
    rows.append({**kernel(5, 6), "globalPid": global_id(7, vm=0) - (2 << 56)})  # the profiler's own ids are negative
    source = open_sqlite(write(tmp_path / "a.sqlite", {KERNEL: rows}))
    assert source.processes()["pid"].to_list() == [7, 7, 7]
    assert source.read("ops").frame.select("proc", "start_ns").rows() == [(0, 5), (1, 1), (2, 3)]


def test_a_process_with_a_context_and_calls_is_a_rank_too(tmp_path: Path) -> None:
    context = [{"hwId": 0, "vmId": 1, "processId": pid, "contextId": 1} for pid in (7, 8, 9)]
    tables = {
        "TARGET_INFO_CUDA_CONTEXT_INFO": context,
        KERNEL: [kernel(1, 2, pid=7)],
        RUNTIME: [call(1, 2, pid=7), call(1, 2, pid=8), call(1, 2, pid=10)],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    assert source.processes()["pid"].to_list() == [7, 8]


def test_an_export_that_names_no_process(tmp_path: Path) -> None:
    rows = [{**kernel(1, 2), "globalPid": None}]
    source = open_sqlite(write(tmp_path / "a.sqlite", {KERNEL: rows}))
    assert source.processes()["pid"].to_list() == [0]
    assert source.read("ops").frame["proc"].to_list() == [0]


def test_kernels_without_demangled_names(tmp_path: Path) -> None:
    row = kernel(1, 2)
    del row["demangledName"]
    source = open_sqlite(write(tmp_path / "a.sqlite", {"StringIds": NAMES, KERNEL: [row]}))
    assert texts(source, "ops")["name"].to_list() == ["gemm"]
    assert texts(source, "ops", "detail")["mangled_name"].to_list() == [None]


def test_domains_by_their_names_else_by_what_is_in_them(tmp_path: Path) -> None:
    tables = {
        "StringIds": NAMES,
        NVTX: [
            range_(-100, None, "MPI", pid=7, eventType=75, domainId=1),
            range_(1, 2, "MPI_Send", pid=7, domainId=1),
            range_(3, 4, None, pid=7, domainId=3, textId=5),
            range_(5, 6, "ncclAllReduce", pid=8, domainId=1),
            range_(7, 8, "other", pid=8, domainId=2),
            range_(9, 9, "plain", pid=8, domainId=0),
        ],
    }
    frame = texts(open_sqlite(write(tmp_path / "a.sqlite", tables)), "ranges")
    assert frame["domain"].to_list() == ["MPI", "NCCL", "NCCL", None, None]


def test_waits_by_api_name_else_by_shape(tmp_path: Path) -> None:
    names = ["cudaEventQuery_v3020", "cudaStreamWaitEvent_v3020", "cuCtxSynchronize", "cudaMemcpy_v3020"]
    base = {"start": 0, "end": 1, "streamId": NONE, "globalPid": global_id(7), "syncType": 2, "eventId": NONE}
    waits = [
        {**base, "correlationId": 1, "eventId": 4},
        {**base, "correlationId": 2, "eventId": 4, "streamId": 7},
        {**base, "correlationId": 3},
        {**base, "correlationId": 4, "streamId": 7},
        {**base, "correlationId": 99},
    ]
    waits = [{**wait, "start": at, "eventSyncId": 6 if wait["eventId"] == 4 else 0} for at, wait in enumerate(waits)]
    tables = {
        "StringIds": strings(*names),
        RUNTIME: [call(at, at + 1, name=at) for at in range(1, 5)],
        SYNC: waits,
    }
    frame = open_sqlite(write(tmp_path / "a.sqlite", tables)).read("syncs").frame
    assert frame["kind"].to_list() == ["event_query", "stream_wait", "context_sync", "stream_sync", "context_sync"]
    assert frame["stream"].to_list() == [-1, 7, -1, 7, -1]
    assert frame["event"].to_list() == [6, 6, None, None, None]


def test_records_take_their_time_from_the_call_and_older_waits_their_record(tmp_path: Path) -> None:
    base = {"streamId": 7, "globalPid": global_id(7), "eventId": 4}
    tables = {
        "StringIds": strings("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020"),
        RUNTIME: [call(at, at + 2, name=1 if at < 30 or at == 40 else 2) for at in (10, 20, 30, 40)],
        RECORD: [{**base, "correlationId": at} for at in (10, 20, 40, 99)],
        SYNC: [{**base, "correlationId": 30, "start": 30, "end": 32, "streamId": 8}],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    frame = source.read("syncs").frame.select("start_ns", "end_ns", "kind", "event")
    assert frame.rows() == [
        (10, 12, "record", 1),
        (20, 22, "record", 2),
        (30, 32, "stream_wait", 2),
        (40, 42, "record", 3),
    ]
    assert "CUPTI_ACTIVITY_KIND_CUDA_EVENT: left out 1 row without a host call in the trace" in source.quality.notes


def test_metrics_belong_to_the_processes_of_the_gpu(tmp_path: Path) -> None:
    kind = (5 << 8) | 1
    tables = {
        KERNEL: [kernel(1, 2, pid=7), kernel(3, 4, pid=8)],
        "TARGET_INFO_GPU": [{"id": at, "name": f"GPU {at}", "cuDevice": at, "smCount": 1} for at in (0, 1)],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": at, "cudaId": 0, "pid": 7 + at} for at in (0, 1)],
        "TARGET_INFO_GPU_METRICS": [{"typeId": kind, "metricId": 2, "metricName": "SMs Active"}],
        "GPU_METRICS": [{"timestamp": -5, "typeId": kind, "metricId": 2, "value": 40}],
    }
    source = open_sqlite(write(tmp_path / "a.sqlite", tables))
    assert source.processes()["gpu"].to_list() == ["GPU 0", "GPU 1"]
    assert texts(source, "counters").rows() == [(1, -5, 0, "SMs Active", 40.0)]


def test_calls_of_the_host(tmp_path: Path) -> None:
    tables = {
        "StringIds": strings("poll", "MPI_Send"),
        KERNEL: [kernel(1, 2)],
        "OSRT_API": [{"start": 1, "end": 5, "globalTid": global_id(7, 3), "nameId": 1, "callchainId": 0}],
        "MPI_P2P_EVENTS": [{"start": 2, "end": 3, "globalTid": global_id(7, 7), "textId": 2}],
    }
    frame = texts(open_sqlite(write(tmp_path / "a.sqlite", tables)), "host")
    assert frame.select("kind", "name", "tid").rows() == [("osrt", "poll", 3), ("mpi", "MPI_Send", 7)]


def test_warnings_of_the_profiler_without_private_parts(tmp_path: Path) -> None:
    warning = "3 events were dropped on node17, see /home/ada/run.log"
    tables = {
        KERNEL: [kernel(1, 2)],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "node17"}],
        "DIAGNOSTIC_EVENT": [
            {"severity": 2, "text": "Not all CUDA events might have been collected."},
            {"severity": 2, "text": "Not all CUDA events might have been collected."},
            {"severity": 1, "text": warning},
            {"severity": 1, "text": "Profiling has started."},
        ],
    }
    assert open_sqlite(write(tmp_path / "a.sqlite", tables)).quality.notes == [
        "the profiler warned (2 times): Not all CUDA events might have been collected.",
        "the profiler warned: 3 events were dropped on <host>, see <path>",
    ]


def test_sparse_string_ids_and_many_row_ranges(tmp_path: Path) -> None:
    count = 40_000
    rows = [kernel(at * 10, at * 10 + 5, pid=7 + at % 3, demangledName=[1, 9_000_000][at % 2]) for at in range(count)]
    names = [{"id": 1, "value": "a"}, {"id": 9_000_000, "value": "b"}]
    source = open_sqlite(write(tmp_path / "a.sqlite", {"StringIds": names, KERNEL: rows}))
    frame = texts(source, "ops")
    expected = pl.DataFrame(
        {"pid": [7 + at % 3 for at in range(count)], "start": [at * 10 for at in range(count)]}
    ).with_columns(name=pl.Series([["a", "b"][at % 2] for at in range(count)]))
    assert frame.select("proc", "start_ns", "name").rows() == [
        (pid - 7, start, name) for pid, start, name in expected.sort("pid", "start").iter_rows()
    ]


def test_ranges_from_before_domains_and_registered_strings(tmp_path: Path) -> None:
    row = {"start": 1, "end": 2, "eventType": 59, "text": "step", "globalTid": global_id(7, 7)}
    source = open_sqlite(write(tmp_path / "a.sqlite", {NVTX: [row]}))
    assert texts(source, "ranges").select("name", "domain", "closed").rows() == [("step", None, True)]
    assert source.tables() == {"ranges"}


def test_threads_that_only_have_names_are_no_ranks(tmp_path: Path) -> None:
    rows = [range_(1, 2, "step"), range_(-5, None, "worker", pid=9, eventType=39)]
    source = open_sqlite(write(tmp_path / "a.sqlite", {NVTX: rows}))
    assert source.processes()["pid"].to_list() == [7]


def test_calls_of_libraries_are_host_records_of_their_own_kind(tmp_path):
    """cuBLAS and cuDNN name them by `nameId`, MPI and UCX by `textId`; OpenACC has a table per kind of event."""
    row = {"start": 10, "end": 20, "globalTid": global_id(7, 9)}
    tables = {
        "CUBLAS_EVENTS": [row | {"nameId": 3}],
        "CUDNN_EVENTS": [row | {"nameId": 3}],
        "UCP_EVENTS": [row | {"textId": 3}],
        "UCP_SUBMIT_EVENTS": [row | {"textId": 3}],
        "UCP_PROGRESS_EVENTS": [row | {"textId": 3}],
        "MPI_P2P_EVENTS": [row | {"textId": 3}],
        "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": [row | {"nameId": 3}],
    }
    file = write(
        tmp_path / "t.sqlite",
        {
            "StringIds": strings("gemm", "cudaLaunchKernel", "f"),
            KERNEL: [kernel(30, 40)],
            RUNTIME: [call(1, 2)],
            **tables,
        },
    )
    rows = texts(open_sqlite(file), "host").select("kind", "tid", "name", "start_ns", "end_ns").rows()
    kinds = ["cublas", "cudnn", "ucx", "ucx", "ucx", "mpi", "openacc"]
    assert sorted(rows) == sorted((kind, 9, "f", 10, 20) for kind in kinds)

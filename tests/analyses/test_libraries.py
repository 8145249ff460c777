"""Calls of libraries: traced by nsys or marked by themselves; in `nvtx`, `source` and `idle`, never steps or stages."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import stepscope
from fake import Row, call, make, nvtx, op
from stepscope import api
from stepscope.errors import BadInput, CannotAnswer


def traced(start: int, end: int, kind: str, name: str, tid: int = 1) -> Row:
    return {"start_ns": start, "end_ns": end, "tid": tid, "kind": kind, "name": name}


STEPS = [nvtx(0, 90, "step 0"), nvtx(100, 190, "step 1"), nvtx(200, 290, "step 2")]


def job(**more):
    """A step of three launches: in a cuBLAS call within another, in a range of CCCL's own, and in none."""
    each = [(k, n) for k in range(3) for n in (1, 2, 3)]
    calls = [call(100 * k + 10 * n, 100 * k + 10 * n + 4, 10 * k + n) for k, n in each]
    ops = [
        op(1000 * k + 100 * n, 1000 * k + 100 * n + 10 * n, f"k{n}", call=10 * k + n)
        for k in range(3)
        for n in (1, 2, 3)
    ]
    host = [traced(100 * k + 8, 100 * k + 16, "cublas", "cublasGemmEx") for k in range(3)]
    host += [traced(100 * k + 9, 100 * k + 15, "cublas", "cublasLtMatmul") for k in range(3)]
    ranges = [*STEPS, *(nvtx(100 * k + 19, 100 * k + 25, "cub::DeviceScan", domain="CCCL") for k in range(3))]
    return make(ops=ops, calls=calls, host=host, ranges=ranges, **more)


def test_what_library_calls_cost_and_launched():
    rows = api.analyse(job(), "nvtx", index=1, by="library").rows
    figures = rows.select("library", "range", "n", "host_ns", "kernel_ns", "gpu_ns", "ops").rows()
    assert figures == [
        ("cuBLAS", "cublasGemmEx", 1, 8, 10, 10, 1),
        ("CCCL", "cub::DeviceScan", 1, 6, 20, 20, 1),
        ("cuBLAS", "cublasLtMatmul", 1, 6, 10, 10, 1),
    ]
    whole = api.analyse(job(), "nvtx", whole=True, by="library").rows
    assert whole["n"].to_list() == [3, 3, 3]


def test_a_call_within_one_of_its_name_is_counted_once():
    host = [traced(8, 40, "mpi", "MPI_Wait"), traced(9, 20, "mpi", "MPI_Wait")]
    p = make(ops=[op(100, 110, call=1)], calls=[call(10, 12, 1)], host=host)
    row = api.analyse(p, "nvtx", whole=True, by="library").rows.row(0, named=True)
    assert (row["library"], row["n"], row["host_ns"], row["ops"], row["max_ns"]) == ("MPI", 2, 32, 1, 32)


def test_they_are_no_ranges_of_the_program():
    """Numbered and recurring, with a stage's name, and around every launch: still no step, stage or enclosing range."""
    ranges = [
        nvtx(s, s + 9, text, domain="cuBLAS")
        for k in range(3)
        for s, text in ((100 * k + 9, f"iteration {k}"), (100 * k + 29, "layer00.stage1_f"))
    ]
    p = make(
        ops=[op(1000 + 100 * k, 1050 + 100 * k, call=k + 1) for k in range(3)],
        calls=[call(100 * k + 10, 100 * k + 14, k + 1) for k in range(3)],
        ranges=[*STEPS, *ranges],
    )
    assert [w["label"] for w in api.analyse(p, "window", index="all").window] == ["step 0", "step 1", "step 2"]
    drawn = api.analyse(p, "timeline", whole=True).rows
    assert set(drawn["stage"]) == {"(no stage)"} and set(drawn["range"]) == {"step 0", "step 1", "step 2"}
    assert set(api.analyse(p, "nvtx", whole=True).rows["range"]) == {"step 0", "step 1", "step 2"}


def test_source_and_idle_name_them():
    stacks = [{"chain": -1, "depth": 0, "name": "f", "file": "/me/a.py", "line": 3}]
    p = job(stacks=stacks)
    ops = {r["kernel"]: r["op"] for r in api.analyse(p, "source", index=1).rows.to_dicts()}
    assert ops == {"k1": "cuBLAS: cublasGemmEx", "k2": "CCCL: cub::DeviceScan", "k3": None}
    p = make(
        ops=[op(0, 100, call=1), op(1000, 1100, call=2)],
        calls=[call(0, 10, 1), call(900, 910, 2)],
        host=[traced(150, 850, "cudnn", "cudnnFind")],
        ranges=[nvtx(300, 700, "ncclCommInitRank", domain="NCCL")],
    )
    doing = api.analyse(p, "idle", whole=True).rows.filter(cause="host")["doing"].to_list()
    assert doing == ["nccl: ncclCommInitRank"]  # the innermost at the middle of the stretch


def test_refusals():
    with pytest.raises(CannotAnswer, match=r"no calls of libraries.*--nsys-args=--trace=\S*cublas"):
        api.analyse(make(ops=[op(0, 1)], ranges=STEPS), "nvtx", whole=True, by="library")
    with pytest.raises(BadInput, match="--flame"):
        api.analyse(job(), "nvtx", whole=True, by="library", flame="x.txt")


@pytest.mark.parametrize(("trace", "library"), [("h200/hf/hf1_rich", "CCCL"), ("public/a100_saxpy_mpi.rank0", "MPI")])
def test_real_calls_against_raw_rows(shared, trace, library):
    file = shared / f"traces/{trace}.sqlite"
    rows = stepscope.open(file, cache=False).nvtx(by="library", whole=True).rows.filter(library=library)
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        raw = db.execute(
            "SELECT coalesce(n.text, s.value), count(*), sum(n.end - n.start), max(n.end - n.start) FROM NVTX_EVENTS n "
            "LEFT JOIN StringIds s ON s.id = n.textId WHERE eventType = 59 AND start >= 0 AND domainId = "
            "(SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = ?) GROUP BY 1 ORDER BY 3 DESC",
            (library,),
        ).fetchall()
    assert len(raw) >= 3 and rows.select("range", "n", "host_ns", "max_ns").rows() == raw

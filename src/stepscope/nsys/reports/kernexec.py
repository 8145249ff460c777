"""Reports on launching and executing kernels: the call, the wait in the queue, the kernel."""

from __future__ import annotations

import polars as pl

from stepscope.nsys.reports.cuda import xyz
from stepscope.nsys.reports.grouping import grouped
from stepscope.nsys.reports.kernels import kernels
from stepscope.nsys.reports.spec import BASE, MANGLED, NVTX_NAME, Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import five, moments
from stepscope.nsys.reports.view import View, coded


def _launched(view: View, args: Args, detail: bool = False) -> Rows:
    """Kernels with their launching call. A kernel that started before the call returned did not wait."""
    view.need("ops", "calls")
    named = kernels(view, args, detail)
    ops = named.frame.filter(pl.col("call").is_not_null())
    texts, code = coded(view.api_names)
    calls = view.calls.select(
        "tid",
        pl.col("start_ns").alias("call_start"),
        pl.col("end_ns").alias("call_end"),
        pl.col("api").alias("api_id"),
    )[ops["call"]]
    calls = calls.with_columns(code.gather(calls["api_id"]).alias("api"))
    wait = pl.col("start_ns") - pl.col("call_end")
    frame = ops.hstack(calls).with_columns(
        (pl.max_horizontal("end_ns", "call_end") - pl.col("call_start")).alias("t_ns"),
        (pl.col("call_end") - pl.col("call_start")).alias("a_ns"),
        pl.when(wait >= 0).then(wait).alias("q_ns"),
        pl.col("duration").alias("k_ns"),
    )
    return Rows(frame, {**named.texts, "api": texts})


def _sum(view: View, args: Args) -> pl.DataFrame:
    rows = _launched(view, args)
    phases = ("t", "a", "q", "k")
    summed = [e for p in phases for e in moments(f"{p}_ns", f"{p}_")]
    kernels = grouped(rows.frame, ("rank", "tid", "device", "api", "kernel"), summed)
    kernels = rows.decoded(kernels.with_columns(view.pid(pl.col("rank")).alias("pid")))
    kernels = kernels.select(
        "pid", "tid", "device", pl.col("t_n"), "q_n", *(e for p in phases for e in five(f"{p}_")), "api", "kernel"
    )
    order = ["t_avg", "pid", "tid", "device", "api", "kernel"]
    return kernels.sort(order, descending=[True] + [False] * 5, nulls_last=False)


def _trace(view: View, args: Args) -> pl.DataFrame:
    rows = _launched(view, args, detail=True)
    return rows.decoded(rows.frame.sort("call_start", "row", maintain_order=True)).select(
        "call_start",
        "a_ns",
        pl.when(pl.col("q_ns").is_not_null()).then("call_end").alias("queue_start"),
        "q_ns",
        "start_ns",
        "k_ns",
        "t_ns",
        view.pid(pl.col("rank")).alias("pid"),
        "tid",
        "device",
        "api",
        xyz("grid_x", "grid_y", "grid_z"),
        xyz("block_x", "block_y", "block_z"),
        "kernel",
    )


def _stats(letter: str) -> list[str]:
    return [f"{letter}{what}:dur_ns" for what in ("Avg", "Med", "Min", "Max", "StdDev")]


_DOC = (
    "A launch has three phases: the call on the host (A), the wait in the queue from its return to the kernel's start"
    " (Q), and the kernel (K); the total (T) is from the start of the call to the end of whichever is later. A kernel"
    " that starts before its call returns has no queue time. Waiting is not bad in itself: it shows that the GPU had"
    " work."
)

REPORTS = (
    Report(
        "cuda_kern_exec_sum",
        "CUDA Kernel Launch & Exec Time Summary",
        columns(
            *("PID", "TID", "DevId", "Count", "QCount"),
            *(c for letter in "TAQK" for c in _stats(letter)),
            *("API Name", "Kernel Name"),
        ),
        _sum,
        f"Launch and execution times by process, thread, device, call and kernel. {_DOC}",
        (NVTX_NAME, BASE, MANGLED),
    ),
    Report(
        "cuda_kern_exec_trace",
        "CUDA Kernel Launch & Exec Time Trace",
        columns(
            *("API Start:ts_ns", "API Dur:dur_ns", "Queue Start:ts_ns", "Queue Dur:dur_ns", "Kernel Start:ts_ns"),
            *("Kernel Dur:dur_ns", "Total Dur:dur_ns", "PID", "TID", "DevId", "API Function", "GridXYZ", "BlockXYZ"),
            "Kernel Name",
        ),
        _trace,
        f"Launch and execution of every kernel, in order of the calls. {_DOC}",
        (NVTX_NAME, BASE, MANGLED),
    ),
)

"""Reports on CUDA calls, kernels and memory operations."""

from __future__ import annotations

import polars as pl

from stepscope.nsys.reports.kernels import all_ops, copies, kernels, memory_label
from stepscope.nsys.reports.spec import BASE, MANGLED, NVTX_NAME, Args, Report, Rows, columns
from stepscope.nsys.reports.statistics import size_sum, time_sum
from stepscope.nsys.reports.view import View

_NAMES = (NVTX_NAME, BASE, MANGLED)
_FIVE = ("Avg:dur_ns", "Med:dur_ns", "Min:dur_ns", "Max:dur_ns", "StdDev:dur_ns")


def times(count: str, *keys: str) -> tuple[str, ...]:
    """The columns that every summary of durations begins with, then its keys."""
    return ("Time:ratio_%", "Total Time:dur_ns", count, *_FIVE, *keys)


def xyz(*dimensions: str) -> pl.Expr:
    """Three numbers in four places each, as in `  20   32    1`."""
    return pl.concat_str([pl.col(d).cast(pl.String).str.pad_start(4) for d in dimensions], separator=" ").alias(
        dimensions[0]
    )


def correlation() -> pl.Expr:
    """What launched what; nsys writes zero for none, torch's traces have none."""
    return (
        pl.when(pl.col("row").is_not_null())
        .then(pl.col("correlation").fill_null(0))
        .otherwise("correlation")
        .alias("correlation")
    )


def _calls(view: View, args: Args) -> Rows:
    view.need("calls")
    calls = view.api_calls().with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration"))
    return Rows(calls, {"api": view.api_names})


def _copies(view: View, args: Args) -> Rows:
    return Rows(copies(view, detail=True))


def _calls_and_ops(view: View, args: Args) -> Rows:
    calls = _calls(view, args).decoded()
    called = calls.select("duration", pl.lit("CUDA_API").alias("category"), pl.col("api").alias("operation"))
    return Rows(pl.concat([called, all_ops(view, args).frame])) if view.profile.has("ops") else Rows(called)


def _api_trace(view: View, args: Args) -> pl.DataFrame:
    view.need("calls")
    rows = Rows(
        view.api_calls(detail=True).sort("start_ns", "row", maintain_order=True),
        {"api": view.api_names, "thread_name": view.names},
    )
    return rows.decoded().select(
        "start_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
        "api",
        "return_value",
        correlation(),
        view.pid(pl.col("rank")).alias("pid"),
        "tid",
        "thread_priority",
        "thread_name",
    )


#: What `cuda_gpu_trace` takes of ops.
_TRACED = (
    *("rank", "kind", "row", "start_ns", "duration", "correlation", "kernel", "operation", "bytes"),
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "smem_static", "smem_dynamic"),
    *("src_kind", "src_code", "dst_kind", "dst_code", "device", "device_name", "context", "green_context", "stream"),
)


def _gpu_trace(view: View, args: Args) -> pl.DataFrame:
    named = kernels(view, args, detail=True)
    wanted = [c for c in named.frame.columns if c in _TRACED]  # of twice as many, a million rows each
    ops = named.decoded(named.frame.select(wanted)).with_columns(pl.col("kernel").alias("operation"))
    moved = copies(view, detail=True)
    moved = moved.select(c for c in moved.columns if c in _TRACED)
    both = pl.concat([ops.drop("kernel"), moved], how="diagonal") if moved.height else ops
    kind = pl.col("kind").to_physical()
    both = Rows(both.sort("start_ns", kind, "row", maintain_order=True), {"device_name": view.names}).decoded()
    kernel = pl.col("kind") == "kernel"
    duration = pl.col("duration")
    ranks = view.profile.ranks
    first = pl.col("rank").replace_strict(ranks["rank"], ranks["gpu"], return_dtype=pl.String, default=None)
    unknown = "GPU" if ranks["gpu"].is_null().all() else ""  # nsys has nothing to say where it knows no device
    name = pl.coalesce("device_name", pl.when(pl.col("row").is_null()).then(first), pl.lit(unknown))
    label = name + pl.lit(" (") + pl.col("device").cast(pl.String) + pl.lit(")")
    return both.select(
        "start_ns",
        duration,
        correlation(),
        *(pl.when(kernel).then(c) for c in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        *(pl.when(kernel).then(c) for c in ("registers", "smem_static", "smem_dynamic")),
        "bytes",
        # Whole operations per second times bytes: nsys divides integers, which is what its digits come from.
        pl.when(duration > 0).then(pl.col("bytes") * (1_000_000_000 // duration)).alias("throughput"),
        pl.when(~kernel).then(memory_label("src")).alias("src"),
        pl.when(pl.col("kind") == "memcpy").then(memory_label("dst")).alias("dst"),
        label.alias("device_label"),
        "context",
        "green_context",
        "stream",
        "operation",
    )


_NAME_NOTE = "Kernels are listed under their full name; :base, :mangled and :nvtx-name choose another."
_SHARE_NOTE = "Time is the part of the sum of all rows, not of the wall clock: operations that overlap both count."

REPORTS = (
    Report(
        "cuda_api_sum",
        "CUDA API Summary",
        columns(*times("Num Calls", "Name")),
        time_sum(_calls, "api"),
        f"Time in CUDA API calls, by function. {_SHARE_NOTE}",
    ),
    Report(
        "cuda_api_trace",
        "CUDA API Trace",
        columns(
            *("Start:ts_ns", "Duration:dur_ns", "Name", "Result", "CorrID", "Pid", "Tid", "T-Pri", "Thread Name"),
        ),
        _api_trace,
        "Every CUDA API call, in order of its start.",
    ),
    Report(
        "cuda_api_gpu_sum",
        "CUDA Summary (API/Kernels/MemOps)",
        columns(*times("Instances", "Category", "Operation")),
        time_sum(_calls_and_ops, "category", "operation"),
        f"CUDA API calls, kernels and memory operations in one list. {_SHARE_NOTE} {_NAME_NOTE}",
        _NAMES,
    ),
    Report(
        "cuda_gpu_kern_sum",
        "CUDA GPU Kernel Summary",
        columns(*times("Instances", "Name")),
        time_sum(kernels, "kernel", ties=("n", "kernel")),
        f"Time in kernels, by name. {_SHARE_NOTE} {_NAME_NOTE}",
        _NAMES,
    ),
    Report(
        "cuda_gpu_kern_gb_sum",
        "CUDA GPU Kernel/Grid/Block Summary",
        columns(*times("Instances", "GridXYZ", "BlockXYZ", "Name")),
        time_sum(
            lambda view, args: kernels(view, args, detail=True),
            *("block_z", "block_y", "block_x", "grid_z", "grid_y", "grid_x", "kernel"),
            ties=("n", "kernel"),
            show=(xyz("grid_x", "grid_y", "grid_z"), xyz("block_x", "block_y", "block_z"), "kernel"),
        ),
        f"Time in kernels, by name and launch dimensions. {_SHARE_NOTE} {_NAME_NOTE}",
        _NAMES,
    ),
    Report(
        "cuda_gpu_mem_time_sum",
        "CUDA GPU MemOps Summary (by Time)",
        columns(*times("Count", "Operation")),
        time_sum(_copies, "operation"),
        f"Time in copies and memsets, by direction. {_SHARE_NOTE}",
    ),
    Report(
        "cuda_gpu_mem_size_sum",
        "CUDA GPU MemOps Summary (by Size)",
        columns(
            "Total:mem_B", "Count", "Avg:mem_B", "Med:mem_B", "Min:mem_B", "Max:mem_B", "StdDev:mem_B", "Operation"
        ),
        size_sum(_copies, "operation"),
        "Bytes moved by copies and memsets, by direction.",
    ),
    Report(
        "cuda_gpu_sum",
        "CUDA GPU Summary (Kernels/MemOps)",
        columns(*times("Instances", "Category", "Operation")),
        time_sum(all_ops, "category", "operation"),
        f"Kernels and memory operations in one list. {_SHARE_NOTE} {_NAME_NOTE}",
        _NAMES,
    ),
    Report(
        "cuda_gpu_trace",
        "CUDA GPU Trace",
        columns(
            *("Start:ts_ns", "Duration:dur_ns", "CorrId", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd"),
            *("StcSMem:mem_B", "DymSMem:mem_B", "Bytes:mem_B", "Throughput:thru_B", "SrcMemKd", "DstMemKd"),
            *("Device", "Ctx", "GreenCtx", "Strm", "Name"),
        ),
        _gpu_trace,
        f"Every kernel and memory operation, in order of its start. {_NAME_NOTE}",
        _NAMES,
    ),
)

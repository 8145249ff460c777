"""Rules: reports that list what is likely to cost time, with advice."""

from __future__ import annotations

import polars as pl

from stepscope.errors import BadInput
from stepscope.nsys.reports.gpuuse import gaps, utilization
from stepscope.nsys.reports.kernels import memory_label
from stepscope.nsys.reports.spec import Args, Argument, Report, Rows, columns
from stepscope.nsys.reports.view import View

_ROWS = Argument("rows", int, "most rows to show; -1 for all", 50)
_SMALL_COPY = 64_000
_PAGEABLE, _PINNED, _MANAGED, _HTOD = 0, 1, 4, 1
_DEVICE = ("Device ID", "Context ID", "Green Context ID", "Stream ID", "API Name")


def top(frame: pl.DataFrame, args: Args) -> pl.DataFrame:
    """The first rows, as many as asked for; a negative number means all."""
    rows = args.number("rows")
    return frame.head(rows) if rows >= 0 else frame


def _by_call(view: View, kind: str, pattern: str, but_not: str | None = None) -> pl.DataFrame:
    """Copies or memsets launched by a runtime call of such a name, longest first. Names match in any case, as in SQL.

    The call is looked up in the whole capture: it may lie outside of the part that is asked for.
    """
    view.need("ops", "calls")
    ops = view.ops(kind, detail=True)
    whole = View(view.profile)
    calls = whole.calls
    names = whole.names
    wanted = names.str.contains(f"(?i)^{pattern}")
    if but_not:
        wanted &= ~names.str.contains(f"(?i){but_not}")
    first = calls["rank"].search_sorted(ops["rank"], side="left").cast(pl.Int64)
    ops = ops.with_columns(call=pl.col("launch").cast(pl.Int64) + first).filter(pl.col("call").is_not_null())
    ops = ops.with_columns(calls["api"].gather(ops["call"]).alias("api"))
    ops = ops.filter(wanted.gather(ops["api"])) if ops.height else ops
    ops = ops.with_columns(duration=pl.col("end_ns") - pl.col("start_ns"), pid=view.pid(pl.col("rank")))
    return Rows(ops.sort("duration", descending=True, maintain_order=True), {"api": names}).decoded()


def _code(side: str, *codes: int) -> pl.Expr:
    words = {0: "pageable", 1: "pinned", 4: "managed"}
    return pl.coalesce(
        pl.col(f"{side}_code").is_in(codes), pl.col(f"{side}_kind").cast(pl.String).is_in([words[c] for c in codes])
    )


_COPY = ("duration", "start_ns", memory_label("src").alias("src"), memory_label("dst").alias("dst"), "bytes")
_PLACE = ("pid", "device", "context", "green_context", "stream", "api")


def _memcpy_async(view: View, args: Args) -> pl.DataFrame:
    ops = _by_call(view, "memcpy", "cudaMemcpy.*Async")
    ops = ops.filter(_code("src", _PAGEABLE) | _code("dst", _PAGEABLE))
    return top(ops, args).select(*_COPY, *_PLACE)


def _memcpy_sync(view: View, args: Args) -> pl.DataFrame:
    ops = _by_call(view, "memcpy", "cudaMemcpy", "Async")
    small = (pl.col("bytes") <= _SMALL_COPY) & (pl.col("copy_kind") == "HtoD")
    same = (pl.col("src_device") == pl.col("dst_device")).fill_null(False)
    ops = ops.filter(~small & ~same)
    return top(ops, args).select(*_COPY, *_PLACE)


def _memset_sync(view: View, args: Args) -> pl.DataFrame:
    ops = _by_call(view, "memset", "cudaMemset", "Async").filter(_code("src", _PINNED, _MANAGED))
    return top(ops, args).select("duration", "start_ns", memory_label("src").alias("memory"), "bytes", *_PLACE)


def _api_sync(view: View, args: Args) -> pl.DataFrame:
    view.need("calls")
    calls = view.api_calls()
    names = view.names
    wanted = names.str.contains("(?i)^cuda(?:Device|Stream)Synchronize")
    calls = calls.filter(wanted.gather(calls["api"])).with_columns(duration=pl.col("end_ns") - pl.col("start_ns"))
    rows = Rows(calls.sort("duration", descending=True, maintain_order=True), {"api": names}).decoded()
    return top(rows, args).select("duration", "start_ns", view.pid(pl.col("rank")).alias("pid"), "tid", "api")


def _gaps(view: View, args: Args) -> pl.DataFrame:
    idle = gaps(view, args.number("gap"))
    return top(idle, args).select("row", "duration", "start_ns", "pid", "device", "context")


def _utilization(view: View, args: Args) -> pl.DataFrame:
    chunks = args.number("chunks")
    if not 1 <= chunks <= 1000:
        raise BadInput(f"gpu_time_util:chunks={chunks}", "give a number from 1 to 1000")
    used = utilization(view, chunks, args.number("threshold"))
    return top(used, args).select("row", "used", "duration", "start_ns", "pid", "device", "context")


_IDLE_ADVICE = (
    "While the GPU has nothing to do, look at the host: `stepscope idle` names the call or the range that held up the"
    " next launch. Typical causes are the data loader, synchronizing calls and allocations."
)

RULES = (
    Report(
        "cuda_memcpy_async",
        "CUDA Async Memcpy with Pageable Memory",
        columns("Duration:dur_ns", "Start:ts_ns", "Src Kind", "Dst Kind", "Bytes:mem_B", "PID", *_DEVICE),
        _memcpy_async,
        "Asynchronous copies from or to pageable memory: the driver stages them, and the call waits.",
        (_ROWS,),
        advice="These copies were asked for as asynchronous but use pageable memory, so they hold up the calling"
        " thread. Allocate the host side pinned: pin_memory=True in the data loader, Tensor.pin_memory(),"
        " cudaHostAlloc.",
    ),
    Report(
        "cuda_memcpy_sync",
        "CUDA Synchronous Memcpy",
        columns("Duration:dur_ns", "Start:ts_ns", "Src Kind", "Dst Kind", "Bytes:mem_B", "PID", *_DEVICE),
        _memcpy_sync,
        "Synchronous copies, but for those within one device and small ones (64 kB) to the device.",
        (_ROWS,),
        advice="The host waited for each of these copies. Copy asynchronously on a stream (non_blocking=True with"
        " pinned memory), and wait only where the data is needed.",
    ),
    Report(
        "cuda_memset_sync",
        "CUDA Synchronous Memset",
        columns("Duration:dur_ns", "Start:ts_ns", "Memory Kind", "Bytes:mem_B", "PID", *_DEVICE),
        _memset_sync,
        "Synchronous memsets of pinned or managed memory: the host waits for them.",
        (_ROWS,),
        advice="Setting pinned or managed memory with cudaMemset makes the host wait. Use cudaMemsetAsync on the stream"
        " that needs the memory.",
    ),
    Report(
        "cuda_api_sync",
        "CUDA Synchronization APIs",
        columns("Duration:dur_ns", "Start:ts_ns", "PID", "TID", "API Name"),
        _api_sync,
        "Calls that make the host wait for a stream or for the whole device.",
        (
            _ROWS,
            Argument("process", int, "only this process id"),
            Argument("thread", int, "only this thread id"),
        ),
        advice="The host waited in these calls and could launch nothing. Remove those that only measure or debug"
        " (.item(), .cpu(), torch.cuda.synchronize()); let streams wait for events instead of the host for streams.",
    ),
    Report(
        "gpu_gaps",
        "GPU Gaps",
        columns("Row#", "Duration:dur_ns", "Start:ts_ns", "PID", "Device ID", "Context ID"),
        _gaps,
        "Times in which a process kept a device idle for longer than a threshold.",
        (_ROWS, Argument("gap", int, "shortest gap to show, in milliseconds (or 800us)", 500, "ms")),
        advice=f"In these gaps the process had no operation on the device. {_IDLE_ADVICE}",
    ),
    Report(
        "gpu_time_util",
        "GPU Time Utilization",
        columns("Row#", "In-Use:ratio_%", "Duration:dur_ns", "Start:ts_ns", "PID", "Device ID", "Context ID"),
        _utilization,
        "Times in which a process used a device for less than a threshold. Concurrent operations add up.",
        (
            _ROWS,
            Argument("threshold", int, "show what is below this percentage", 50),
            Argument("chunks", int, "cut the time from first to last operation into so many pieces (1 to 1000)", 30),
        ),
        advice=f"In these times the process used the device little. {_IDLE_ADVICE}",
    ),
)

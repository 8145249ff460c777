"""Reports on what else was traced on the host: OS runtime, MPI, OpenMP, OpenACC, cuDNN, cuBLAS, unified memory."""

from __future__ import annotations

import polars as pl

from stepscope.nsys.reports.cuda import times
from stepscope.nsys.reports.spec import Args, Argument, Report, Rows, columns
from stepscope.nsys.reports.statistics import Source, time_sum
from stepscope.nsys.reports.view import View

#: nsys's class of plain calls; the others are its own helper records.
_OSRT_CALL = 27
_MPI = {"mpi_p2p": "p2p", "mpi_start_wait": "start_wait", "mpi_other": "other", "mpi_collective": "collectives"}


def _records(*kinds: str, event_class: int | None = None) -> Source:
    def source(view: View, args: Args) -> Rows:
        records = view.records(*kinds).with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration"))
        if event_class is not None:
            records = records.filter(pl.col("event_class") == event_class)
        records = records.with_columns(
            pl.col("kind").cast(pl.String).replace(_MPI).alias("source"),
        )
        return Rows(records, {"name": view.names})

    return source


def _openacc(view: View, args: Args) -> Rows:
    """Events with the line of the source they are for: `name@file:line`."""
    rows = _records("openacc")(view, args)
    named = Rows(rows.frame, {"name": view.names, "file": view.names}).decoded()
    place = pl.concat_str(pl.lit("@"), "file", pl.lit(":"), pl.col("line").cast(pl.String))
    return Rows(named.with_columns(pl.concat_str("name", place.fill_null("")).alias("name")))


def _mpi_trace(view: View, args: Args) -> pl.DataFrame:
    collective = pl.col("kind") == "mpi_collective"
    records = view.records(*_MPI).sort("start_ns", pl.col("kind").to_physical(), "row", maintain_order=True)
    return (
        Rows(records, {"name": view.names})
        .decoded()
        .select(
            "start_ns",
            "end_ns",
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration"),
            "name",
            "pid",
            "tid",
            "tag",
            "mpi_rank",
            "peer",
            "root",
            pl.when(~collective).then("bytes").alias("bytes"),
            pl.when(collective).then("bytes").alias("sent"),
            "recv_bytes",
        )
    )


def _calls(name: str, title: str, *kinds: str, count: str = "Num Calls", event_class: int | None = None) -> Report:
    return Report(
        name,
        title,
        columns(*times(count, "Name")),
        time_sum(_records(*kinds, event_class=event_class), "name"),
        f"{title}: time by name. Time is the part of the sum of all rows, not of the wall clock.",
    )


# -- unified memory ----------------------------------------------------------------------------------------------

_HTOD, _DTOH = 11, 12
_UM_KINDS = ("um_cpu_fault", "um_gpu_fault", "um_copy")


def _um_by_address(view: View) -> pl.DataFrame:
    """Faults and migrations by virtual address; null where an address had none of a kind."""
    records = view.records(*_UM_KINDS)
    view.records("um_cpu_fault"), view.records("um_gpu_fault")  # nsys answers only where both were traced
    copy = pl.col("kind") == "um_copy"
    cpu = pl.col("kind") == "um_cpu_fault"
    htod, dtoh = copy & (pl.col("event_class") == _HTOD), copy & (pl.col("event_class") == _DTOH)

    def total(which: pl.Expr, of: pl.Expr) -> pl.Expr:
        return pl.when(which.any()).then(of.filter(which).sum())

    return records.group_by("address").agg(
        total(htod, pl.col("bytes")).alias("htod"),
        total(dtoh, pl.col("bytes")).alias("dtoh"),
        pl.when(cpu.any()).then(cpu.sum().cast(pl.Int64)).alias("cpu"),
        total((pl.col("kind") == "um_gpu_fault") & pl.col("count").is_not_null(), pl.col("count")).alias("gpu"),
        total(copy, pl.col("end_ns") - pl.col("start_ns")).alias("time"),
    )


def _um_sum(view: View, args: Args) -> pl.DataFrame:
    faults = _um_by_address(view)
    moved = pl.col("htod").fill_null(0) + pl.col("dtoh").fill_null(0)
    faults = faults.with_columns(
        pl.when(pl.col("time") > 0).then(moved * (1_000_000_000 // pl.col("time"))).alias("throughput")
    )
    faults = faults.sort("throughput", "address", descending=[True, False], nulls_last=True)
    rows = args.number("rows")
    faults = faults.head(rows) if rows >= 0 else faults
    return faults.select("address", "htod", "dtoh", "cpu", "gpu", "throughput")


def _um_total(view: View, args: Args) -> pl.DataFrame:
    faults = _um_by_address(view)
    records = view.records(*_UM_KINDS).with_columns(pl.col("event_class").fill_null(0))
    which = pl.when(pl.col("kind") == "um_copy").then("event_class").otherwise(pl.col("kind").to_physical() + 100)
    records = records.filter((pl.col("kind") != "um_copy") | pl.col("event_class").is_in([_HTOD, _DTOH]))
    seen = records.drop_nulls("address").select(which.n_unique()).item()
    # Faults of both sides and copies of both directions, or nsys names no addresses: SQL's least of a null is null.
    address = pl.when(pl.lit(seen == 4)).then("address")
    sums = [pl.when(pl.col(c).is_not_null().any()).then(pl.col(c).sum()).alias(c) for c in ("htod", "dtoh", "gpu")]
    return faults.select(
        *sums[:2], pl.col("cpu").sum(), sums[2], address.min().alias("low"), address.max().alias("high")
    )


def _um_cpu_faults(view: View, args: Args) -> pl.DataFrame:
    records = view.records("um_cpu_fault")
    counts = Rows(records.group_by("name").len(), {"name": view.names}).decoded()
    return counts.sort("len", "name", descending=[True, False]).select("len", "name")


REPORTS = (
    _calls("osrt_sum", "OS Runtime Summary", "osrt", event_class=_OSRT_CALL),
    _calls("openmp_sum", "OpenMP Summary", "openmp", count="Count"),
    _calls("cudnn_api_sum", "cuDNN API Summary", "cudnn"),
    _calls("cublas_api_sum", "cuBLAS API Summary", "cublas"),
    Report(
        "openacc_sum",
        "OpenACC Summary",
        columns(*times("Num Calls", "Name")),
        time_sum(_openacc, "name"),
        "Time in OpenACC events, by name and source line.",
    ),
    Report(
        "mpi_event_sum",
        "MPI Event Summary",
        columns(*times("Instances", "Source", "Name")),
        time_sum(_records(*_MPI), "source", "name"),
        "Time in MPI calls, by kind of call and name.",
    ),
    Report(
        "mpi_event_trace",
        "MPI Event Trace",
        columns(
            *("Start:ts_ns", "End:ts_ns", "Duration:dur_ns", "Event", "Pid", "Tid", "Tag", "Rank", "PeerRank"),
            *("RootRank", "Size:mem_B", "CollSendSize:mem_B", "CollRecvSize:mem_B"),
        ),
        _mpi_trace,
        "Every MPI call, in order of its start.",
    ),
    Report(
        "um_sum",
        "Unified Memory Analysis Summary",
        columns(
            *("Virtual Address:addr_uint", "HtoD Migration size:mem_B", "DtoH Migration size:mem_B"),
            *("CPU Page Faults", " GPU Page Faults", "Migration Throughput:thru_B"),
        ),
        _um_sum,
        "Migrations and page faults of unified memory, by address; the fastest first.",
        (Argument("rows", int, "most rows to show; -1 for all", 10),),
    ),
    Report(
        "um_total_sum",
        "Unified Memory Totals Summary",
        columns(
            *("Total HtoD Migration Size:mem_B", "Total DtoH Migration Size:mem_B", "Total CPU Page Faults"),
            *("Total GPU PageFaults", "Minimum Virtual Address:addr_uint", "Maximum Virtual Address:addr_uint"),
        ),
        _um_total,
        "Migrations and page faults of unified memory, in all.",
    ),
    Report(
        "um_cpu_page_faults_sum",
        "Unified Memory CPU Page Faults Summary",
        columns("CPU Page Faults", "CPU Instruction Address"),
        _um_cpu_faults,
        "Page faults of the CPU on unified memory, by the instruction that caused them.",
    ),
)

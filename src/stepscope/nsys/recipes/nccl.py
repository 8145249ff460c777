"""NCCL's calls, as ranges of its NVTX domain or as torch records them, and what they launched."""

from __future__ import annotations

import polars as pl

from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.nsys.reports.projection import project
from stepscope.nsys.reports.spec import Args, Rows
from stepscope.nsys.reports.view import View

_NO_CALLS = ("the profile has no NCCL calls", capture_with())
_DURATION = (pl.col("end_ns") - pl.col("start_ns")).alias("value")


def _calls(view: View) -> pl.DataFrame:
    """Calls of NCCL on the host; torch's metadata that sits on kernels is not one."""
    if not view.profile.has("comms"):
        raise CannotAnswer(*_NO_CALLS)
    comms = view.profile.comms.filter(pl.col("tid").is_not_null() & pl.col("correlation").is_null())
    return comms if view.part.whole else comms.filter(view.part.mask(comms, per_thread=True))


def nccl_calls(view: View, args: Args) -> Rows:
    """Host time of the calls; torch's records of collectives where there are no ranges of NCCL."""
    return Rows(_calls(view).select("rank", pl.col("op").alias("name"), _DURATION), {"name": view.names})


def nccl_projections(view: View, args: Args) -> Rows:
    """From the first start to the last end of what each call launched; of torch's traces, the kernels with metadata."""
    view.need("ops")
    if not _is_torch(view):
        view.need("calls")
        calls = _calls(view)
        made = project(view)
        keys = ["rank", "tid", "start_ns", "end_ns", "name"]
        ranges = view.attribution.ranges.select(keys).with_columns(pl.Series("value", made.end - made.start))
        ranges = ranges.filter(pl.Series(made.n > 0))
        ours = calls.select(*keys[:-1], pl.col("op").alias("name")).unique()
        return Rows(ranges.join(ours, on=keys, how="semi").select("rank", "name", "value"), {"name": view.names})
    on_kernels = _on_kernels(view).select("rank", "correlation", "op")
    ops = view.ops("kernel").join(on_kernels, on=["rank", "correlation"], how="inner")
    return Rows(ops.select("rank", pl.col("op").alias("name"), _DURATION), {"name": view.names})


def call_bytes(view: View, args: Args) -> pl.DataFrame:
    """Bytes of the calls by rank, name and communicator, as the source states them."""
    return _bytes(view, _calls(view))


def kernel_bytes(view: View, args: Args) -> pl.DataFrame:
    """The same of what was launched: by torch's metadata on the kernels where that is what there is."""
    return _bytes(view, _on_kernels(view) if _is_torch(view) else _calls(view))


def _bytes(view: View, comms: pl.DataFrame) -> pl.DataFrame:
    summed = comms.group_by("rank", pl.col("op").alias("name"), "communicator").agg(
        pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes")
    )
    return Rows(summed, {"name": view.names, "communicator": view.names}).decoded()


def _is_torch(view: View) -> bool:
    return any(s.format == "kineto" for s in view.profile.sources)


def _on_kernels(view: View) -> pl.DataFrame:
    """Metadata that sits on kernels."""
    if not view.profile.has("comms"):
        raise CannotAnswer(*_NO_CALLS)
    return view.profile.comms.filter(pl.col("correlation").is_not_null()).unique(["rank", "correlation"])

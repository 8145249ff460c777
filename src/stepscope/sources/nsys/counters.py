"""Sampled GPU metrics."""

from __future__ import annotations

import polars as pl

from stepscope.model.schema import Part, empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk
from stepscope.sources.nsys.processes import Gpus
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import Value, field

GPU_METRICS = "GPU_METRICS"


def read_counters(export: Export, part: Part) -> Chunk:
    """Samples are the device's, whoever runs on it: every process of a GPU has them all."""
    names = Names()
    samples = export.tables.frame(
        GPU_METRICS,
        {
            "start_ns": field("timestamp"),
            "type": field("typeId"),
            "metric": field("metricId"),
            "value": field("value", kind="real"),
        },
    ).drop_nulls(["start_ns", "type"])
    metrics = [
        (kind, metric, names.intern(str(name)))
        for kind, metric, name in export.tables.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
    ]
    known = pl.DataFrame(metrics, schema={"type": pl.Int64, "metric": pl.Int64, "name": pl.UInt32}, orient="row")
    samples = samples.join(known.unique(["type", "metric"]), on=["type", "metric"], how="inner", maintain_order="left")
    # The lowest byte of the type is the GPU.
    samples = samples.with_columns(gpu=pl.col("type") & 0xFF)
    users = pl.DataFrame(_users(export), schema={"gpu": pl.Int64, "proc": pl.Int32, "device": pl.Int32}, orient="row")
    frame = samples.join(users, on="gpu", how="inner", maintain_order="left")
    return chunk(frame, "counters", part, names) if frame.height else Chunk(empty("counters", part))


def _users(export: Export) -> list[tuple[Value, int, int]]:
    """(GPU, proc, the process's ordinal of it) of every device that a process used."""
    gpus = Gpus(export)
    return [
        (gpus.number(key & 0xFFFFFF, device), proc, device)
        for proc, key in enumerate(export.keys)
        for device in sorted(export.devices.get(key, ()))
    ]

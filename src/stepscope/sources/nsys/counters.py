"""Sampled metrics: of GPUs, and of network cards."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk
from stepscope.sources.nsys.processes import Gpus
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import field, text_field

GPU_METRICS = "GPU_METRICS"
NIC_METRICS = "NET_NIC_METRIC"
#: Before the name of what a network card counted: the card is the sample's device.
_NIC = "NIC "


_COLUMNS = {"proc": pl.Int32, "start_ns": pl.Int64, "device": pl.Int32, "name": pl.UInt32, "value": pl.Float64}


def read_counters(export: Export, part: Part) -> Chunk:
    """Samples are the device's, whoever runs on it: every process of a GPU has all, of a host those of cards."""
    names = Names()
    frames = [f for f in (_of_gpus(export, names), _of_cards(export, names)) if f.height]
    if not frames:
        return Chunk(empty("counters", part))
    return chunk(export, pl.concat(frames, how="diagonal_relaxed"), "counters", part, names)


def _of_gpus(export: Export, names: Names) -> pl.DataFrame:
    samples = export.tables.frame(
        GPU_METRICS,
        {
            "start_ns": field("timestamp"),
            "type": field("typeId"),
            "metric": field("metricId"),
            "value": field("value", kind="real"),
        },
    ).drop_nulls(["start_ns", "type"])
    listed = export.tables.rows("TARGET_INFO_GPU_METRICS", field("typeId"), field("metricId"), text_field("metricName"))
    metrics = [(kind, metric, names.intern(str(name))) for kind, metric, name in listed]
    named = pl.DataFrame(metrics, schema={"type": pl.Int64, "metric": pl.Int64, "name": pl.UInt32}, orient="row")
    samples = samples.join(named.unique(["type", "metric"]), on=["type", "metric"], how="inner", maintain_order="left")
    # The lowest byte of the type is the GPU.
    samples = samples.with_columns(gpu=pl.col("type") & 0xFF)
    users = pl.DataFrame(_users(export), schema={"gpu": pl.Int64, "proc": pl.Int32, "device": pl.Int32}, orient="row")
    return samples.join(users, on="gpu", how="inner", maintain_order="left").select(list(_COLUMNS))


def _of_cards(export: Export, names: Names) -> pl.DataFrame:
    """What network cards counted, at the start of each sample; `device` is nsys's number of the card."""
    samples = export.tables.frame(
        NIC_METRICS,
        {
            "start_ns": field("start"),
            "card": field("globalId"),
            "list": field("metricsListId"),
            "metric": field("metricsIdx"),
            "value": field("value", kind="real"),
        },
    ).drop_nulls(["start_ns", "card"])
    if samples.is_empty():
        return pl.DataFrame(schema=_COLUMNS)
    listed = export.tables.rows(
        "TARGET_INFO_NETWORK_METRICS", field("metricsListId"), field("metricsIdx"), text_field("name")
    )
    metrics = [(of, metric, names.intern(f"{_NIC}{name}")) for of, metric, name in listed]
    named = pl.DataFrame(metrics, schema={"list": pl.Int64, "metric": pl.Int64, "name": pl.UInt32}, orient="row")
    numbered = export.tables.rows("NIC_ID_MAP", field("globalId"), field("nicId"))
    cards = pl.DataFrame(numbered, schema={"card": pl.Int64, "nic": pl.Int64}, orient="row")
    samples = samples.join(named.unique(["list", "metric"]), on=["list", "metric"], maintain_order="left")
    samples = samples.join(cards.unique("card"), on="card", how="left", maintain_order="left")
    samples = samples.with_columns(
        pl.coalesce("nic", pl.col("card") & 0xFF).cast(pl.Int32, strict=False).alias("device")
    )
    processes = pl.DataFrame({"proc": range(len(export.keys))}, schema={"proc": pl.Int32})
    return samples.join(processes, how="cross").select(list(_COLUMNS))


def _users(export: Export) -> list[tuple[int | None, int, int]]:
    """(GPU, proc, the process's ordinal of it) of every device that a process used."""
    gpus = Gpus(export)
    return [
        (gpus.number(key & 0xFFFFFF, device), proc, device)
        for proc, key in enumerate(export.keys)
        for device in sorted(export.devices.get(key, ()))
    ]

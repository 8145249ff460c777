"""Counters and synchronization records: the small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.model.columns import ALLOC_ACTION, SYNC_KIND
from stepscope.sources.kineto.decoding import decode_samples
from stepscope.sources.kineto.gpu import positive
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import PID, RANK, Rows

#: Names that Kineto gives to CUPTI's kinds of synchronization.
_SYNC_KINDS = {
    "Event Sync": "event_sync",
    "Stream Wait Event": "stream_wait",
    "Stream Sync": "stream_sync",
    "Context Sync": "context_sync",
}
_GPU = r"^GPU (\d+) Counters$"
#: Counters are bytes and percentages: larger numbers are none.
_LARGEST = 1e30


def counters(rows: Rows, text: bytes, names: Names) -> pl.DataFrame:
    """Counter events: every number in `args` is a series of its own."""
    base = pl.DataFrame(rows.base()).drop("end_ns")
    # `args` of a counter may hold any key, so these (rare) chunks are decoded a second time, with all keys.
    samples = [s for s in decode_samples(text) if s.ph == "C"]
    values: list[tuple[int, str, float]] = []
    for row, sample in enumerate(samples[: base.height]):
        series = {k: v for k, v in (sample.args or {}).items() if _is_number(v) and k not in ("device", "rank")}
        for key, value in series.items():
            values.append(
                (row, sample.name if key in ("", "value", sample.name) else f"{sample.name} {key}", float(value))
            )
    index = [row for row, _, _ in values]
    # torch's CUPTI backend says the device in place of a process: `GPU 0 Counters`.
    of_gpu = pl.Series([e.pid if isinstance(e.pid, str) else None for e in rows.events], dtype=pl.String)
    device = pl.select(pl.coalesce(rows.small("device"), of_gpu.str.extract(_GPU).cast(pl.Int32, strict=False)))
    return base.with_columns(device.to_series().alias("device"))[index].with_columns(
        pl.Series("name", names.ids([name for _, name, _ in values])),
        pl.Series("value", [value for _, _, value in values], dtype=pl.Float64),
    )


def memory(rows: Rows, names: Names) -> pl.DataFrame | None:
    """Torch's allocator samples. On the host only what is allocated is known; its device is null."""
    kept = rows.where([e.name == "[memory]" for e in rows.events])
    if kept is None:
        return None
    base = pl.DataFrame({**kept.base(), "device": kept.small("device_id")}).drop("end_ns")
    on_host = (base["device"].fill_null(-1) < 0).to_numpy()
    device, host, reserved = names.ids(["memory allocated", "host memory allocated", "memory reserved"]).tolist()
    allocated_name = pl.Series("name", np.where(on_host, host, device).astype(np.uint32))
    base = base.with_columns(pl.when(pl.col("device") >= 0).then("device").alias("device"))
    both = pl.concat(
        [
            base.with_columns(allocated_name, kept.arg("allocated").alias("value")),
            base.with_columns(pl.lit(reserved, pl.UInt32).alias("name"), kept.arg("reserved").alias("value")).filter(
                ~pl.Series(on_host)
            ),
        ]
    )
    return both.drop_nulls("value").with_columns(pl.col("value").cast(pl.Float64))


def allocations(rows: Rows) -> pl.DataFrame | None:
    """The same samples as what the allocator did: a block given out, or (fewer than 0 bytes) taken back."""
    kept = rows.where(
        [e.name == "[memory]" and (a.device_id or 0) >= 0 for e, a in zip(rows.events, rows.args, strict=True)]
    )
    if kept is None:
        return None
    size = kept.arg("block_bytes")
    return pl.DataFrame(
        {
            **kept.base(),
            "tid": kept.tid(),
            "device": kept.small("device_id"),
            "action": pl.Series(np.where((size < 0).fill_null(False), "free", "alloc"), dtype=ALLOC_ACTION),
            "bytes": size.abs(),
            "address": kept.arg("address"),
            "allocated_bytes": kept.arg("allocated"),
            "reserved_bytes": kept.arg("reserved"),
        }
    ).drop("end_ns")


def finish_allocations(frame: pl.DataFrame) -> pl.DataFrame:
    """In the order in which they happened, numbered."""
    return frame.sort("start_ns", maintain_order=True).with_row_index("row")


def syncs(rows: Rows) -> pl.DataFrame:
    """`cuda_sync` records: who waits for which event. `record` and `record_stream` tell where it was recorded."""
    return pl.DataFrame(
        {
            **rows.base(),
            "kind": pl.Series([_SYNC_KINDS.get(n, "unknown") for n in rows.names()], dtype=SYNC_KIND),
            "stream": rows.small("stream"),
            "correlation": rows.arg("correlation"),
            "event": rows.arg("wait_record"),
            "record_stream": rows.small("wait_stream"),
        }
    ).with_columns(positive("correlation"), positive("event"))


def event_records(rows: Rows) -> pl.DataFrame:
    """`cuda_event` records: the stream of each recorded event. Their own times mean nothing before CUDA 12.8."""
    return pl.DataFrame(
        {
            **rows.base(),
            "kind": pl.Series(["record"] * len(rows), dtype=SYNC_KIND),
            "stream": rows.small("stream"),
            "correlation": rows.arg("correlation"),
            "event": rows.arg("correlation"),
        }
    ).with_columns(positive("correlation"), positive("event"))


def finish_syncs(syncs: pl.DataFrame | None, records: pl.DataFrame | None, calls: pl.DataFrame | None) -> pl.DataFrame:
    """All synchronization, at the times of the host's calls; an event is known by the correlation of its record."""
    if records is None and syncs is not None:
        # Without records of their own, the waits tell which call recorded, and on which stream.
        records = (
            syncs.filter(pl.col("event").is_not_null() & (pl.col("record_stream") >= 0))
            .select(
                "start_ns",
                "end_ns",
                PID,
                RANK,
                pl.lit("record", SYNC_KIND).alias("kind"),
                pl.col("record_stream").alias("stream"),
                pl.col("event").alias("correlation"),
                "event",
            )
            .unique(["correlation", RANK], keep="first", maintain_order=True)
        )
        # A record whose call is not in the trace has no time.
        known: Any = calls["correlation"] if calls is not None else []
        records = records.filter(pl.col("correlation").is_in(pl.Series(known, dtype=pl.Int64).implode()))
    frames = [f.drop("record_stream", strict=False) for f in (syncs, records) if f is not None]
    frame = pl.concat(frames, how="diagonal").with_columns(pl.col("stream").fill_null(-1))
    if calls is None:
        return frame
    synchronizing = pl.col("correlation").is_in(frame["correlation"].drop_nulls().unique().implode())  # few of all
    times = calls.select("correlation", RANK, "start_ns", "end_ns").filter(synchronizing)
    joined = frame.join(
        times.unique(["correlation", RANK], keep="first", maintain_order=True),
        on=["correlation", RANK],
        how="left",
        suffix="_call",
        nulls_equal=True,
        maintain_order="left",
    )
    return joined.with_columns(
        pl.coalesce("start_ns_call", "start_ns").alias("start_ns"),
        pl.coalesce("end_ns_call", "end_ns").alias("end_ns"),
    ).drop("start_ns_call", "end_ns_call")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST

"""What was sampled: threads of the host, as the operating system saw them, and metrics of GPUs and network cards.

`--sample` fills COMPOSITE_EVENTS (a row per sample) and SAMPLING_CALLCHAINS (its frames, of which only the innermost is
read: there are twenty to a sample). `--cpuctxsw` fills SCHED_EVENTS: a thread got a CPU, or lost it.
"""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import OFF_CPU_STATE, SAMPLE_KIND, Part
from stepscope.model.schema import empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk
from stepscope.sources.nsys.mapping import coded, tid
from stepscope.sources.nsys.processes import Gpus
from stepscope.sources.nsys.stacks import python_samples
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import Field, field, text_field

SAMPLED = "COMPOSITE_EVENTS"
SCHEDULED = "SCHED_EVENTS"
_FRAMES = "SAMPLING_CALLCHAINS"
#: nsys's state of a thread that lost its CPU. What still ran was pushed off it; a blocked or sleeping one waits.
_STATE = coded({1: "runnable", **dict.fromkeys((2, 3, 7, 8), "waiting")}, "unknown", OFF_CPU_STATE)
#: nsys's reasons that say nothing: not blocked, unknown.
_NO_REASON = (0, 1)


def read_samples(export: Export, part: Part) -> Chunk:
    names = Names()
    kind = pl.lit("python", dtype=SAMPLE_KIND).alias("kind")
    frames = [_native(export, names), python_samples(export, names).with_columns(kind)]
    return chunk(export, pl.concat(frames, how="diagonal_relaxed"), "samples", part, names)


def read_off_cpu(export: Export, part: Part) -> Chunk:
    """From each time a thread lost its CPU to when it next got one.

    A thread that first got one had none before, since the capture began; one that lost its last never got another.
    """
    names = Names()
    events = _of_ranks(
        export,
        SCHEDULED,
        {
            "start_ns": field("start"),
            "got": field("isSchedIn"),
            "state": field("threadState"),
            "reason": field("threadBlock"),
        },
    ).drop_nulls("start_ns")
    events = events.sort("proc", "tid", "start_ns", maintain_order=True).with_columns(got=pl.col("got") != 0)
    thread = ["proc", "tid"]
    lost = (
        events.with_columns(
            end_ns=pl.col("start_ns").shift(-1).over(thread), again=pl.col("got").shift(-1).over(thread)
        )
        # Two losses in a row: the event between them was dropped, and nothing is known of the time.
        .filter(~pl.col("got") & pl.col("again").fill_null(True))
        .with_columns(pl.col("end_ns").fill_null(pl.max_horizontal("start_ns", pl.lit(export.capture_end))))
    )
    first = events.unique(thread, keep="first", maintain_order=True).filter("got", pl.col("start_ns") > 0)
    before = first.select(*thread, start_ns=pl.lit(0, pl.Int64), end_ns="start_ns")
    frame = pl.concat([before, lost], how="diagonal_relaxed")
    reasons = {key: label for key, label in _reasons(export) if key not in _NO_REASON and label}
    ids = {key: names.intern(label) for key, label in reasons.items()}
    reason = pl.col("reason").replace_strict(ids, default=None, return_dtype=pl.UInt32) if ids else pl.lit(None)
    frame = frame.with_columns(_STATE(pl.col("state")), reason.alias("reason"))
    return chunk(export, frame, "off_cpu", part, names)


def _native(export: Export, names: Names) -> pl.DataFrame:
    samples = _of_ranks(export, SAMPLED, {"id": field("id"), "start_ns": field("start")})
    fields = {"id": field("id"), "name": field("symbol"), "file": field("module")}
    innermost = export.tables.frame(_FRAMES, fields, only=("stackDepth", (0,))).unique("id", keep="first")
    samples = samples.join(innermost, on="id", how="left", maintain_order="left")
    return samples.with_columns(
        pl.lit("native", dtype=SAMPLE_KIND).alias("kind"),
        names.by_id(samples["name"], export.strings),
        names.by_id(samples["file"], export.strings),
    )


def _of_ranks(export: Export, table: str, fields: dict[str, Field]) -> pl.DataFrame:
    """Rows of threads of the ranks; those of other processes of the machine are nobody's business."""

    def convert(raw: pl.DataFrame) -> pl.DataFrame:
        frame = raw.with_columns(export.proc_of(raw["thread"]), tid(pl.col("thread")).alias("tid")).drop("thread")
        return frame.drop_nulls("proc")

    return export.tables.frame(table, {"thread": field("globalTid"), **fields}, each=convert)


def _reasons(export: Export) -> list[tuple[int, str]]:
    return export.tables.rows("ENUM_SCHEDULING_THREAD_BLOCK", field("id"), text_field("label"))


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

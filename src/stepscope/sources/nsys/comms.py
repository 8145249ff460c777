"""NCCL calls, from the ranges of its NVTX domain."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import empty
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk, read_events
from stepscope.sources.nsys.mapping import NVTX
from stepscope.sources.nsys.payload import decode_payloads
from stepscope.sources.nsys.ranges import DOMAIN, NCCL, PUSH_POP, START_END, close, domain_of, name_of
from stepscope.sources.nsys.strings import Names
from stepscope.sources.nsys.tables import decode, field

_COLUMNS = (
    "start_ns",
    "end_ns",
    "tid",
    "kind",
    "nsys_type",
    "text",
    "text_id",
    "domain_id",
    "payload",
    "json",
    "json_id",
)
_INIT = "ncclCommInit"


def read_comms(export: Export, part: Part) -> Chunk:
    """Every call of NCCL, also those that say nothing of their communicator; groups' starts and ends too."""
    names = Names()
    frame = _calls(export, names)
    if frame is None:
        return Chunk(empty("comms", part))
    frame = frame.filter(pl.col("start_ns") >= 0)
    texts = [names.by_text(frame[c].cast(pl.Binary)) for c in ("communicator", "reduction")]
    return chunk(export, frame.with_columns(texts), "comms", part, names)


def has_comms(export: Export) -> bool:
    """Whether NCCL left ranges, by the names it registers; newer ones lack its prefix, but its domain has a name."""
    tables = export.tables
    names = [key for key, text in export.strings.containing("nccl").items() if text.startswith("nccl")]
    if names and not set(names).isdisjoint(key for (key,) in tables.distinct(NVTX.table, "textId")):
        return True
    named = tables.containing(NVTX.table, "text", NCCL, "eventType", "domainId")
    numbers = [number for text, kind, number in named if (text, kind) == (NCCL, DOMAIN) and isinstance(number, int)]
    kinds = tables.frame(NVTX.table, {"kind": field("eventType")}, only=("domainId", numbers))["kind"]
    return bool(kinds.is_in([PUSH_POP, START_END]).any())


def world_of(export: Export) -> dict[int, tuple[int, int]]:
    """(rank, ranks) of each process in its widest communicator, as NCCL's initialization said; by `proc`."""
    inits = [key for key, text in export.strings.containing(_INIT).items() if text.startswith(_INIT)]
    frame = _calls(export, Names(), only=("textId", inits)) if inits else None
    if frame is None:
        return {}
    places = frame.drop_nulls(["comm_rank", "comm_size"]).sort("comm_size", "start_ns", descending=[True, False])
    widest = places.unique("proc", keep="first", maintain_order=True).select("proc", "comm_rank", "comm_size")
    return {proc: (rank, size) for proc, rank, size in widest.iter_rows()}


def _calls(export: Export, names: Names, only: tuple[str, list[int]] | None = None) -> pl.DataFrame | None:
    """NCCL's ranges, all or `only` some, also from before the capture: communicators are made there."""
    only = only or ("domainId", [number for (number,) in export.tables.distinct(NVTX.table, "domainId") if number])
    frame = read_events(export, NVTX, _COLUMNS, only=only, early=True)
    if frame.is_empty():
        return None
    frame = close(frame.filter(pl.col("nsys_type").is_in([PUSH_POP, START_END])), export)
    frame = frame.with_columns(name_of(export, frame, names))
    frame = frame.filter(domain_of(export, frame, names) == names.intern(NCCL)).rename({"name": "op"})
    if frame.is_empty():
        return None
    json_texts = [
        decode(raw) if raw else (export.strings.get(at) if at is not None else None)
        for raw, at in frame.select("json", "json_id").iter_rows()
    ]
    frame = pl.concat([frame, decode_payloads(export.tables, frame, json_texts)], how="horizontal")
    return _with_membership(_with_depth(frame, names), names)


def _with_depth(frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """How many groups are open around each call; a group's own start and end count the groups around it.

    A capture can begin inside a group: ends without a start must not count below zero.
    """
    texts = names.series().to_list()
    starts = [at for at, text in enumerate(texts) if text.removeprefix("nccl") == "GroupStart"]
    ends = [at for at, text in enumerate(texts) if text.removeprefix("nccl") == "GroupEnd"]
    opened, closed = pl.col("op").is_in(starts).cast(pl.Int32), pl.col("op").is_in(ends).cast(pl.Int32)
    thread = ["proc", "tid"]
    floor = pl.min_horizontal(pl.col("level").cum_min().over(thread), pl.lit(0, dtype=pl.Int32))
    return (
        frame.sort("start_ns", maintain_order=True)
        .with_columns(level=(opened - closed).cum_sum().over(thread))
        .with_columns(depth=pl.col("level") - floor - opened)
    )


def _with_membership(frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """Own rank and size are said once, when a communicator is made: they hold for all its calls.

    Only by initialization: a split says rank and size of the communicator that it splits.
    """
    texts = names.series().to_list()
    inits = [at for at, text in enumerate(texts) if text.startswith(_INIT)]
    key = ["proc", "communicator"]
    made = frame.filter(pl.col("op").is_in(inits)).drop_nulls([*key, "comm_rank", "comm_size"])
    made = made.select(*key, "comm_rank", "comm_size").unique(key, keep="last", maintain_order=True)
    return frame.drop("comm_rank", "comm_size").join(made, on=key, how="left", maintain_order="left")

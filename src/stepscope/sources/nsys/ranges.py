"""NVTX ranges and marks, and the domains they live in."""

from __future__ import annotations

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk
from stepscope.sources.nsys.events import Export, chunk, read_events
from stepscope.sources.nsys.mapping import NVTX
from stepscope.sources.nsys.strings import Names

PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75
NCCL = "NCCL"


def read_ranges(export: Export, part: Part) -> Chunk:
    names = Names()
    wanted = TABLES["ranges"].part(part)
    needs = {*wanted, "kind"}
    if "name" in wanted or "registered" in wanted:
        needs |= {"text", "text_id"}
    if "domain" in wanted:
        needs |= {"text", "text_id", "domain_id"}
    frame = read_events(export, NVTX, needs, only=("eventType", (PUSH_POP, START_END, MARK)))
    frame = close(frame, export)
    if "registered" in wanted:
        frame = frame.with_columns(registered=(pl.col("text") == b"") & pl.col("text_id").is_not_null())
    if "name" in wanted:
        frame = frame.with_columns(name_of(export, frame, names))
        frame = frame.hstack(domains_of(export, frame, names))
    return chunk(export, frame, "ranges", part, names)


def close(frame: pl.DataFrame, export: Export) -> pl.DataFrame:
    """Every range has an end: nsys gives unclosed ones the end of the capture, or none at all; a mark has no length."""
    mark = pl.col("kind") == "mark"
    given = pl.lit(export.capture_ns, dtype=pl.Int64)
    unclosed = ~mark & (pl.col("end_ns").is_null() | (pl.col("end_ns") == given).fill_null(False))
    end = pl.when(mark).then("start_ns").when(unclosed).then(pl.max_horizontal("start_ns", pl.lit(export.capture_end)))
    return frame.with_columns(closed=~unclosed, end_ns=end.otherwise("end_ns"))


def name_of(export: Export, frame: pl.DataFrame, names: Names) -> pl.Series:
    """The text of each range: its own, else the registered string; empty where it has neither."""
    own = names.by_text(frame["text"])
    registered = names.by_id(frame["text_id"], export.strings)
    name = pl.select(pl.coalesce(own, registered)).to_series().alias("name")
    return name.fill_null(names.intern("")) if name.null_count() else name


def domains(export: Export) -> dict[tuple[int, int], str]:
    """Name of each domain by (proc, number): numbers are given per process, in order of creation."""
    created = read_events(
        export, NVTX, ("text", "text_id", "domain_id"), only=("eventType", (DOMAIN,)), early=True
    ).drop_nulls("domain_id")
    names = Names()
    ids = name_of(export, created, names)
    texts = names.series().to_list()
    return {
        (proc, number): texts[at] for proc, number, at in zip(created["proc"], created["domain_id"], ids, strict=True)
    }


def domain_of(export: Export, frame: pl.DataFrame, names: Names) -> pl.Series:
    """The domain of each named range, null for the default one."""
    return domains_of(export, frame, names)["domain"]


def domains_of(export: Export, frame: pl.DataFrame, names: Names) -> pl.DataFrame:
    """`domain` of each named range, and `domain_recorded`: whether the export names it itself.

    Cut files have lost the rows that name the domains. NCCL's is then known by the names in it.
    """
    named = domains(export)
    recorded = set(named)
    nccl = [at for at, text in enumerate(names.series()) if text.startswith("nccl")]
    in_nccl = frame.filter(pl.col("name").is_in(nccl), pl.col("domain_id") != 0).select("proc", "domain_id").unique()
    for proc, number in in_nccl.iter_rows():
        named.setdefault((proc, number), NCCL)
    texts = pl.DataFrame(
        [(*key, names.intern(text), key in recorded) for key, text in sorted(named.items()) if key[1] != 0],
        schema={"proc": pl.Int32, "domain_id": pl.Int64, "domain": pl.UInt32, "domain_recorded": pl.Boolean},
        orient="row",
    )
    key = ["proc", "domain_id"]
    return frame.select(key).join(texts, on=key, how="left", maintain_order="left").select("domain", "domain_recorded")

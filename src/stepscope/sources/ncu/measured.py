"""What a report or a page says, as three frames with texts in place of ids: the form between readers and the source."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from stepscope.model.note import Note

KERNELS = {
    "kernel": pl.Int64,
    "name": pl.String,
    "mangled_name": pl.String,
    "pid": pl.Int64,
    "host": pl.String,
    "device": pl.Int32,
    "context": pl.Int32,
    "stream": pl.Int32,
    **{f"{what}_{axis}": pl.Int32 for what in ("grid", "block") for axis in "xyz"},
    "cc": pl.String,
    "nvtx": pl.String,
}
METRICS = {"kernel": pl.Int64, "name": pl.String, "unit": pl.String, "value": pl.Float64, "text": pl.String}
ADVICE = {
    "kernel": pl.Int64,
    "rule": pl.String,
    "section": pl.String,
    "kind": pl.String,
    "text": pl.String,
    "speedup_pct": pl.Float64,
    "speedup_of": pl.String,
}


@dataclass
class Measured:
    """Kernels, metrics in units without prefixes, and what rules say; `page` is which page of ncu it was."""

    kernels: pl.DataFrame
    metrics: pl.DataFrame
    advice: pl.DataFrame
    page: str
    notes: list[Note] = field(default_factory=list)

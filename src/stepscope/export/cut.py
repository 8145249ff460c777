"""A cut: what happens in the windows, with all that launched it."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stepscope.derive.windows.window import Window
from stepscope.export.content import LAUNCH, Content


def cut(content: Content, windows: Iterable[Window]) -> Content:
    """Rows that touch the windows of their rank, from the host's first moment in them to the GPU's last.

    What touches is kept whole, so that steps and ranges keep their names and their lengths. A call and what it launched
    stay together.
    """
    spans = _spans(windows)
    tables = {name: _within(frame, spans) for name, frame in content.tables.items()}
    if LAUNCH in tables.get("ops", pl.DataFrame()).columns:
        ops, calls = content.tables["ops"], content.tables["calls"]
        launched = ops.join(tables["calls"].select("rank", LAUNCH).drop_nulls(), on=["rank", LAUNCH], how="semi")
        tables["ops"] = _both(ops, tables["ops"], launched)
        launching = calls.join(tables["ops"].select("rank", LAUNCH).drop_nulls(), on=["rank", LAUNCH], how="semi")
        tables["calls"] = _both(calls, tables["calls"], launching)
    return content.limited(tables)


def _spans(windows: Iterable[Window]) -> pl.DataFrame:
    """From the first to the last moment of each rank's windows, on the host and on the GPU."""
    rows = [
        {"rank": w.rank, "begin": t, "finish": t}
        for w in windows
        for t in (w.cpu_start_ns, w.cpu_end_ns, w.gpu_start_ns, w.gpu_end_ns)
        if t is not None
    ]
    schema = {"rank": pl.Int32, "begin": pl.Int64, "finish": pl.Int64}
    return pl.DataFrame(rows, schema=schema).group_by("rank").agg(pl.col("begin").min(), pl.col("finish").max())


def _within(frame: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    end = "end_ns" if "end_ns" in frame.columns else "start_ns"
    placed = frame.select(list(dict.fromkeys(("rank", "start_ns", end)))).with_row_index("at").join(spans, on="rank")
    kept = placed.filter((pl.col("start_ns") <= pl.col("finish")) & (pl.col(end) >= pl.col("begin")))
    return frame[kept["at"].sort()]


def _both(frame: pl.DataFrame, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Rows that are in one or the other, in the order of the frame."""
    keys = ["rank", "start_ns", "end_ns", LAUNCH, "name"]
    kept = pl.concat([one.select(keys), other.select(keys)]).unique()
    return frame.join(kept, on=keys, how="semi", nulls_equal=True, maintain_order="left")

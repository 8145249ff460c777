"""The model as a folder of Parquet files, a table each: for DuckDB, pandas and whatever reads columns.

Texts stand where the model has numbers of texts. Times are on the common clock, as in every export.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.export.content import FLOWS, Content
from stepscope.model.exported import FOLDER_HEADER
from stepscope.model.schema import TABLES


def write(content: Content, others: dict[str, pl.DataFrame], folder: Path) -> int:
    """The tables of `content`, and `others` that have no times; how many rows there are."""
    folder.mkdir()
    rows = 0
    for name, frame in {**content.tables, **others}.items():
        written = _texts(_on_one_clock(frame, content), name, content.names)
        written.drop(FLOWS, strict=False).write_parquet(folder / f"{name}.parquet")
        rows += written.height
    content.ranks.write_parquet(folder / "ranks.parquet")
    header = replace(content.header, tables=[*content.header.tables, *others])
    (folder / FOLDER_HEADER).write_text(header.text(), "utf-8")
    return rows


def _texts(frame: pl.DataFrame, table: str, names: pl.Series) -> pl.DataFrame:
    ids = [c for c in TABLES[table].name_ids() if c in frame.columns]
    return frame.with_columns(names.gather(frame[c]).alias(c) for c in ids)


def _on_one_clock(frame: pl.DataFrame, content: Content) -> pl.DataFrame:
    if content.clock.clocks is None or "rank" not in frame.columns:
        return frame
    for column in (c for c in ("start_ns", "end_ns") if c in frame.columns):
        own = frame[column].fill_null(0).to_numpy()
        ranks = content.ranks["rank"].to_list()
        at = np.concatenate([content.clock.at(rank, own[(frame["rank"] == rank).to_numpy()]) for rank in ranks])
        there = frame[column].is_not_null()
        frame = frame.with_columns(pl.when(there).then(pl.Series(at)).alias(column))
    return frame

"""What Nsight Compute measured, as a source: the tables `measured`, `metrics` and `advice`, and no timeline."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.model.columns import Part
from stepscope.model.schema import TABLES, empty
from stepscope.model.source import Chunk, Quality, SourceInfo, canonical, conform, process_table
from stepscope.sources.ncu.measured import Measured

_DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg")
_GPU = "device__attribute_display_name"
_NUMBERS = {
    "registers": "launch__registers_per_thread",
    "smem_static": "launch__shared_mem_per_block_static",
    "smem_dynamic": "launch__shared_mem_per_block_dynamic",
}


class NcuSource:
    """One report or page. Kernels are of the processes that the page names; a report names none."""

    def __init__(self, path: Path, form: str, measured: Measured) -> None:
        self.path = path
        self.quality = Quality(list(measured.notes))
        kernels = _completed(measured)
        facts = {"page": measured.page}
        if (cc := kernels["cc"].drop_nulls().unique(maintain_order=True)).len():
            facts["compute capability"] = ", ".join(cc.to_list())
        self.info = SourceInfo(path.name, form, facts=facts)
        order = kernels["pid"].fill_null(0).unique(maintain_order=True)
        procs = pl.DataFrame({"key": order, "proc": range(len(order))}, schema={"key": pl.Int64, "proc": pl.Int32})
        kernels = kernels.with_columns(key=pl.col("pid").fill_null(0))
        self._kernels = kernels.join(procs, on="key", how="left", maintain_order="left")
        proc = self._kernels.select("kernel", "proc")
        self._tables = {
            "measured": self._kernels,
            "metrics": measured.metrics.join(proc, on="kernel", how="left", maintain_order="left"),
            "advice": measured.advice.join(proc, on="kernel", how="left", maintain_order="left"),
        }

    def processes(self) -> pl.DataFrame:
        first = self._kernels.unique("proc", keep="first", maintain_order=True).sort("proc")
        return process_table(
            first.select("proc", pl.col("pid").fill_null(0), "device", "gpu", host=pl.lit(None, pl.String)).to_dicts()
        )

    def tables(self) -> frozenset[str]:
        return frozenset(name for name, frame in self._tables.items() if frame.height)

    def read(self, table: str, part: Part = "core") -> Chunk:
        if table not in self.tables():
            return Chunk(empty(table, part))
        frame = self._tables[table]
        coded = [column for column in TABLES[table].name_ids() if column in frame.columns]
        texts = pl.concat([frame[column].drop_nulls() for column in coded]).unique(maintain_order=True)
        ids = pl.DataFrame({"text_": texts, "id_": pl.Series(range(len(texts)), dtype=pl.UInt32)})
        for column in coded:
            ids_column = frame.select(text_=column).join(ids, on="text_", how="left", maintain_order="left")["id_"]
            frame = frame.with_columns(ids_column.alias(column))
        return Chunk(conform(canonical(frame, table), table, part, self.quality), texts.rename("name"))


def _completed(measured: Measured) -> pl.DataFrame:
    """The kernels with what their metrics say of the launch: how long it took, on what, with which resources."""
    metrics = measured.metrics
    frame = measured.kernels.with_columns(pl.lit(None, pl.String).alias("gpu"))
    wanted = {**dict.fromkeys(_DURATION, "dur_ns"), **{metric: column for column, metric in _NUMBERS.items()}}
    for metric, column in wanted.items():
        value = metrics.filter((pl.col("name") == metric) & pl.col("value").is_not_null())
        value = value.unique("kernel", keep="first").select(
            "kernel", pl.col("value").round(0).cast(pl.Int64, strict=False)
        )
        joined = frame.join(value, on="kernel", how="left", maintain_order="left")
        have = pl.col(column) if column in frame.columns else pl.lit(None, pl.Int64)
        frame = joined.with_columns(pl.coalesce(have, "value").alias(column)).drop("value")
    gpu = metrics.filter((pl.col("name") == _GPU) & pl.col("text").is_not_null()).unique("kernel", keep="first")
    return frame.drop("gpu").join(gpu.select("kernel", gpu="text"), on="kernel", how="left", maintain_order="left")

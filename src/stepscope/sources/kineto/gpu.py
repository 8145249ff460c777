"""GPU activities: kernels, copies and memsets."""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from stepscope.model.schema import COPY_KIND, MEM_KIND, OP_KIND
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import PID, Rows

_DIRECTION = re.compile(r"\b([HDPA]to[HDPA])\b")
_LONG_DIRECTION = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)")  # old ROCm: CopyDeviceToHost
_MEMORIES = re.compile(r"\(\s*(\w+)\s*->\s*(\w+)\s*\)")
_MEMORY = re.compile(r"\(\s*(\w+)\s*\)")
_MEM_KINDS = {k: k for k in ("pageable", "pinned", "device", "array", "managed")} | {
    "device static": "static",
    "managed static": "static",
}


def kernels(rows: Rows, names: Names) -> pl.DataFrame:
    """Kernels, with their launch geometry. `smem_dynamic` is all shared memory: Kineto writes the sum only."""
    grid, block = rows.triple("grid"), rows.triple("block")
    return _ops(
        rows,
        "kernel",
        pl.Series("name", names.ids(rows.names())),
        {
            **{f"grid_{axis}": series for axis, series in zip("xyz", grid, strict=True)},
            **{f"block_{axis}": series for axis, series in zip("xyz", block, strict=True)},
            "registers": rows.arg("registers"),
            "smem_dynamic": rows.arg("shared"),
            "graph_node": rows.arg("graph_node"),
            "occupancy_pct": pl.Series(rows.values("occupancy"), dtype=pl.Float64),
        },
        pl.repeat("none", len(rows), dtype=pl.String, eager=True),
    )


def copies(rows: Rows, names: Names) -> pl.DataFrame:
    """Copies: direction and kinds of memory are in the name, `Memcpy HtoD (Pinned -> Device)`."""
    parsed = [copy_of(name) for name in rows.names()]
    return _ops(
        rows,
        "memcpy",
        pl.Series("name", names.ids([f"[memcpy {kind}]" for kind, _, _ in parsed])),
        {
            "bytes": rows.arg("bytes"),
            "src_kind": pl.Series([source for _, source, _ in parsed], dtype=MEM_KIND),
            "dst_kind": pl.Series([target for _, _, target in parsed], dtype=MEM_KIND),
            "src_device": rows.arg("src_device"),
            "dst_device": rows.arg("dst_device"),
            "graph_node": rows.arg("graph_node"),
        },
        pl.Series([kind for kind, _, _ in parsed], dtype=pl.String),
    )


def memsets(rows: Rows, names: Names) -> pl.DataFrame:
    kinds = [memset_of(name) for name in rows.names()]
    return _ops(
        rows,
        "memset",
        pl.Series("name", names.ids(["[memset]"] * len(rows))),
        {
            "bytes": rows.arg("bytes"),
            "src_kind": pl.Series(kinds, dtype=MEM_KIND),
            "graph_node": rows.arg("graph_node"),
        },
        pl.repeat("none", len(rows), dtype=pl.String, eager=True),
    )


def _ops(rows: Rows, kind: str, name: pl.Series, detail: dict[str, pl.Series], copy_kind: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            **rows.base(),
            "name": name,
            "device": rows.arg("device"),
            "stream": rows.arg("stream"),
            "correlation": rows.correlation(),
            "context": rows.arg("context"),
            "external_id": rows.arg("external"),
            "tid": rows.tid(),
            **detail,
        }
    )
    narrow = [c for c in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "smem_dynamic")]
    return frame.with_columns(
        pl.lit(kind, OP_KIND).alias("kind"),
        copy_kind.cast(COPY_KIND).alias("copy_kind"),
        # Where args lack them, the process and thread of a GPU event are its device and stream.
        pl.coalesce("device", PID).cast(pl.Int32, strict=False).alias("device"),
        pl.coalesce("stream", "tid").cast(pl.Int32, strict=False).fill_null(-1).alias("stream"),
        pl.col("context").cast(pl.Int32, strict=False),
        *(pl.col(c).cast(pl.Int32, strict=False) for c in narrow if c in frame.columns),
    ).drop("tid")


@cache
def copy_of(name: str) -> tuple[str, str, str]:
    """(direction, memory read, memory written) of a copy by its name."""
    kind = "unknown"
    if found := _DIRECTION.search(name):
        kind = found[1]
    elif found := _LONG_DIRECTION.search(name):
        kind = f"{found[1][0]}to{found[2][0]}"
    if "A" in kind:
        kind = "array"
    if kind not in COPY_KIND.categories.to_list():
        kind = "unknown"
    memories = _MEMORIES.search(name)
    source, target = (memories[1], memories[2]) if memories else ("", "")
    return kind, _memory(source), _memory(target)


@cache
def memset_of(name: str) -> str:
    """Memory that a memset sets, by its name."""
    found = _MEMORY.search(name)
    return _memory(found[1] if found else "")


def _memory(text: str) -> str:
    return _MEM_KINDS.get(text.lower(), "unknown")

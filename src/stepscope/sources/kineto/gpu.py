"""GPU activities: kernels, copies and memsets."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import polars as pl

from stepscope.model.columns import COPY_KIND, DEPENDENCY_KIND, MEM_KIND, OP_KIND
from stepscope.sources.kineto.events import Args
from stepscope.sources.kineto.names import Names
from stepscope.sources.kineto.rows import PID, RANK, Rows

_DIRECTION = re.compile(r"\b([HDPA]to[HDPA])\b")
_LONG_DIRECTION = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)")  # old ROCm: CopyDeviceToHost
_MEMORIES = re.compile(r"\(\s*(\w+)\s*->\s*(\w+)\s*\)")
_MEMORY = re.compile(r"\(\s*(\w+)\s*\)")
_MEM_KINDS = {k: k for k in ("pageable", "pinned", "device", "array", "managed")} | {
    "device static": "static",
    "managed static": "static",
}


_ACTIVITY = ("rank", "external", "device", "context", "stream", "correlation", "graph_node", "op_id")


def kernels(rows: Rows, names: Names) -> pl.DataFrame:
    """Kernels, with their launch geometry. `smem_dynamic` is all shared memory: Kineto writes the sum only."""
    rows.take(*_ACTIVITY, "grid", "block", "registers", "shared", "occupancy")
    grid, block = rows.triple("grid"), rows.triple("block")
    return pl.DataFrame(
        {
            **_activity(rows, names),
            "name": names.ids(rows.names()),
            **{f"grid_{axis}": series for axis, series in zip("xyz", grid, strict=True)},
            **{f"block_{axis}": series for axis, series in zip("xyz", block, strict=True)},
            "registers": rows.small("registers"),
            "smem_dynamic": rows.small("shared"),
            "occupancy_pct": pl.Series(rows.values("occupancy"), dtype=pl.Float64),
        }
    )


def copies(rows: Rows, names: Names) -> pl.DataFrame:
    """Copies: direction and kinds of memory are in the name, `Memcpy HtoD (Pinned -> Device)`."""
    parsed = [copy_of(name) for name in rows.names()]
    if any(kind == "unknown" for kind, _, _ in parsed):
        parsed = [
            known if known[0] != "unknown" else _said(args) for known, args in zip(parsed, rows.args, strict=True)
        ]
    return pl.DataFrame(
        {
            **_activity(rows, names),
            "name": names.ids([f"[memcpy {kind}]" for kind, _, _ in parsed]),
            "copy_kind": pl.Series([kind for kind, _, _ in parsed], dtype=COPY_KIND),
            "bytes": rows.arg("bytes"),
            "src_kind": pl.Series([source for _, source, _ in parsed], dtype=MEM_KIND),
            "dst_kind": pl.Series([target for _, _, target in parsed], dtype=MEM_KIND),
            "src_device": rows.small("src_device"),
            "dst_device": rows.small("dst_device"),
        }
    )


def memsets(rows: Rows, names: Names) -> pl.DataFrame:
    return pl.DataFrame(
        {
            **_activity(rows, names),
            "name": names.ids(["[memset]"] * len(rows)),
            "bytes": rows.arg("bytes"),
            "src_kind": pl.Series([memset_of(name) for name in rows.names()], dtype=MEM_KIND),
        }
    )


def finish(frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    """What all rows of one kind share, done once for the whole file."""
    if "copy_kind" not in frame.columns:
        frame = frame.with_columns(pl.lit("none", COPY_KIND).alias("copy_kind"))
    return frame.with_columns(
        pl.lit(kind, OP_KIND).alias("kind"),
        # Where args lack them, the process and thread of a GPU event are its device and stream.
        pl.coalesce("device", pl.col(PID).cast(pl.Int32, strict=False)).alias("device"),
        pl.coalesce("stream", "tid", pl.lit(-1, pl.Int32)).alias("stream"),
        # Kineto writes 0 for "none".
        positive("correlation"),
        positive("graph_node"),
    ).drop("tid")


def positive(column: str) -> pl.Expr:
    return pl.when(pl.col(column) > 0).then(pl.col(column)).alias(column)


def _activity(rows: Rows, names: Names) -> dict[str, Any]:
    node = rows.arg("graph_node")
    annotated = _annotated(rows, names) if node.null_count() < len(node) else {}
    return {
        **rows.base(),
        "device": rows.small("device"),
        "stream": rows.small("stream"),
        "tid": rows.tid(),
        "correlation": rows.arg("correlation"),
        "context": rows.small("context"),
        "external_id": rows.arg("external"),
        "graph_node": node,
        "op_id": rows.arg("op_id"),
        **annotated,
    }


def _annotated(rows: Rows, names: Names) -> dict[str, Any]:
    """What the program noted of nodes of its graphs."""
    node = rows.values("graph_node")
    texts = {"annotation": "name", "annotation_phase": "autograd_phase", "annotation_stack": "stack"}
    return {
        column: names.optional(t if n is not None and t else None for n, t in zip(node, rows.values(of), strict=True))
        for column, of in texts.items()
    }


def dependencies(rows: Rows) -> pl.DataFrame | None:
    """Which ops each of these waited for, where the trace says so."""
    waits = rows.values("waits")
    if not any(waits):
        return None
    after = pl.Series(waits, dtype=pl.List(pl.Int64))
    lists = pl.DataFrame({**rows.base(), "op_id": rows.arg("op_id"), "after_id": after})
    return lists.drop("end_ns").explode("after_id").drop_nulls(["op_id", "after_id"])


def finish_dependencies(frame: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """What kind each is: nodes of a graph share the launch."""
    who = [PID, RANK]
    nodes = ops.select(*who, "op_id", "correlation", pl.col("graph_node").is_not_null().alias("node"))
    for end in ("op_id", "after_id"):
        launches = nodes.rename({"op_id": end, "correlation": f"launch_{end}", "node": f"node_{end}"})
        frame = frame.join(launches, on=[*who, end], how="left", nulls_equal=True, maintain_order="left")
    graph = pl.col("node_op_id") & pl.col("node_after_id") & (pl.col("launch_op_id") == pl.col("launch_after_id"))
    kind = pl.when(graph.fill_null(False)).then(pl.lit("graph")).otherwise(pl.lit("other")).cast(DEPENDENCY_KIND)
    return frame.select("start_ns", *who, "op_id", "after_id", kind.alias("kind"))


@lru_cache(maxsize=1024)
def copy_of(name: str) -> tuple[str, str, str]:
    """(direction, memory read, memory written) of a copy by its name."""
    kind = "unknown"
    if match := _DIRECTION.search(name):
        kind = match[1]
    elif match := _LONG_DIRECTION.search(name):
        kind = f"{match[1][0]}to{match[2][0]}"
    if "A" in kind:
        kind = "array"
    if kind not in COPY_KIND.categories.to_list():
        kind = "unknown"
    memories = _MEMORIES.search(name)
    source, target = (memories[1], memories[2]) if memories else ("", "")
    return kind, _memory(source), _memory(target)


@lru_cache(maxsize=1024)
def memset_of(name: str) -> str:
    """Memory that a memset sets, by its name."""
    match = _MEMORY.search(name)
    return _memory(match[1] if match else "")


def _said(args: Args) -> tuple[str, str, str]:
    """The same of a copy whose arguments say it."""
    kind = copy_of(str(args.copy_kind))[0]
    return kind, _memory(str(args.src_kind)), _memory(str(args.dst_kind))


def _memory(text: str) -> str:
    return _MEM_KINDS.get(text.lower(), "unknown")

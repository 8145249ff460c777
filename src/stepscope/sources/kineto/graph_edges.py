"""Which node of a CUDA graph came after which, by the arrows of torch's CUPTI backend (torch 2.15).

It draws each edge of a replay as a flow from the end of one node to the start of another, on their lanes; its numbers
begin at 2^40, beyond all correlation ids. A node is found by its lane and that time, and both ends are of one replay:
where several fit, the edge is left out. Nodes that do no work (records of events, callbacks of the host) are not ops of
the model: who waited for such a node waited for what that one waited for (decision 0043).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, Mask
from stepscope.sources.kineto.rows import PID, RANK, Rows

_FIRST = 1 << 40
#: What every such number begins with: most chunks have none, and are not decoded again.
MARK = b"1099511"
#: The longest chain of nodes without work that is followed.
_MOST_PASSED = 1000
_NODE = ("device", "lane", "correlation", "start_ns", "end_ns")


class Flow(msgspec.Struct, gc=False):
    """An event of a chunk, as far as arrows need it."""

    ph: str = ""
    id: Any = None
    pid: Any = None
    tid: Any = None
    ts: float = math.nan


_DECODER = msgspec.json.Decoder(list[Flow])


def flows(text: bytes) -> tuple[list[Flow], Mask]:
    """The events of a chunk, and which of them are ends of such arrows; none where the chunk has another form."""
    try:
        events = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [], np.zeros(0, dtype=bool)
    is_end = [
        e.ph in ("s", "f") and isinstance(e.id, int) and e.id >= _FIRST and isinstance(e.pid, int) for e in events
    ]
    return events, np.array(is_end, dtype=bool)


def ends(events: list[Flow], at: I64) -> pl.DataFrame:
    """The chosen ends of arrows, with their times."""
    lanes = [e.tid if isinstance(e.tid, int) else -1 for e in events]
    return pl.DataFrame(
        {
            "start_ns": at,
            "id": [e.id for e in events],
            "begins": [e.ph == "s" for e in events],
            "device": [e.pid for e in events],
            "lane": lanes,
        },
        schema_overrides=dict.fromkeys(("id", "device", "lane"), pl.Int64),
    )


def idle_nodes(rows: Rows) -> pl.DataFrame:
    """Nodes that do no work."""
    lane = pl.Series([e.tid if isinstance(e.tid, int) else -1 for e in rows.events], dtype=pl.Int64)
    return pl.DataFrame(
        {**rows.base(), "device": rows.arg("device"), "lane": lane, "correlation": rows.arg("correlation")}
    )


def edges_of(
    arrows: pl.DataFrame, ops: pl.DataFrame, idle: pl.DataFrame | None
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """The ops with numbers, and a row for each op that waited for another; None without edges among ops."""
    working = ops.with_row_index("place").filter(pl.col("graph_node").is_not_null())
    nodes = working.select("place", *_columns("stream"), PID, RANK)
    if idle is not None:
        nodes = pl.concat([nodes, idle.select(pl.lit(None, pl.UInt32).alias("place"), *_columns("lane"), PID, RANK)])
    nodes = nodes.with_row_index("node").with_columns(pl.col("node").cast(pl.Int64))
    is_op = nodes["place"].is_not_null().to_numpy()
    row, after = between_ops(*_found(arrows, nodes), is_op)
    if not len(row):
        return ops, None
    numbered = ops.with_columns(pl.Series("op_id", np.arange(1, ops.height + 1)))
    place = nodes["place"].cast(pl.Int64).fill_null(-1).to_numpy()
    edges = (
        nodes[row]
        .select("start_ns", PID, RANK)
        .with_columns(pl.Series("op_id", place[row] + 1), pl.Series("after_id", place[after] + 1))
    )
    return numbered, edges


def _columns(lane: str) -> list[pl.Expr]:
    return [pl.col({"lane": lane}.get(c, c)).cast(pl.Int64).alias(c) for c in _NODE]


def _found(arrows: pl.DataFrame, nodes: pl.DataFrame) -> tuple[I64, I64]:
    """Rows of nodes that came after others, and those of the others."""
    ends = arrows.unique(["id", "begins"], keep="none", maintain_order=True)
    on = ["device", "lane"]
    first = ends.filter("begins").join(nodes, left_on=[*on, "start_ns"], right_on=[*on, "end_ns"])
    then = ends.filter(~pl.col("begins")).join(nodes, on=[*on, "start_ns"])
    pairs = first.select("id", "correlation", "node").join(
        then.select("id", "correlation", "node"), on=["id", "correlation"], suffix="_then"
    )
    pairs = pairs.filter(pl.col("node") != pl.col("node_then")).unique("id", keep="none", maintain_order=True)
    return pairs["node_then"].to_numpy(), pairs["node"].to_numpy()


def between_ops(row: I64, after: I64, is_op: Mask) -> tuple[I64, I64]:
    """The same pairs, with what nodes without work waited for in their place."""
    passing = pl.DataFrame({"after": row, "beyond": after}).filter(~pl.Series(is_op[row]))
    for _ in range(_MOST_PASSED):
        through = ~is_op[after]
        if not through.any():
            break
        rest = pl.DataFrame({"row": row[through], "after": after[through]}).join(passing, on="after")
        further = rest["row"].to_numpy(), rest["beyond"].to_numpy()
        row, after = (np.concatenate([a[~through], b]) for a, b in zip((row, after), further, strict=True))
        row, after = distinct(row, after, len(is_op))
    mine = is_op[row] & is_op[after] & (row != after)
    return row[mine], after[mine]


def distinct(row: I64, after: I64, count: int) -> tuple[I64, I64]:
    pairs = np.unique(row * count + after)
    return pairs // max(count, 1), pairs % max(count, 1)

"""What torch's own ranges say of a launch: the op, the pass, and for a backward node the forward op that made it."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.pytorch.torch_ops import TorchOps
from stepscope.intervals.arrays import I64, NONE, Mask, take
from stepscope.model.nesting import nearest


class Passes:
    """The ops of one rank, and how its passes hang together."""

    def __init__(self, torch: TorchOps) -> None:
        self._torch = torch
        frame = torch.frame
        self._node = frame["node"].to_numpy()
        parent = torch.nesting.parent
        # From each op to the outermost around it, and from a backward op to its outermost node.
        self._root = outermost(parent, np.ones(len(parent), dtype=bool))
        self._top_node = outermost(parent, self._node)
        self._maker = _makers(torch)

    def of(self, tid: I64, at: I64) -> tuple[I64, I64, I64]:
        """Rows of torch's ops: the outermost around each moment, its backward node, and that node's forward op."""
        innermost = self._torch.nesting.enclosing(tid, at)
        node = take(self._top_node, innermost, NONE)
        return take(self._root, innermost, NONE), node, take(self._maker, node, NONE)

    def makes(self, rows: I64) -> Mask:
        """Whether each op was run with gradients recorded: a backward node came of it, or could."""
        recorded = (self._torch.frame["sequence"].is_not_null() & ~self._torch.frame["node"]).to_numpy()
        return take(recorded, rows, False)

    def text(self, root: I64, node: I64) -> pl.Series:
        rows = pl.Series(np.where(node != NONE, node, root)).replace(NONE, None)
        return self._torch.frame["name"].gather(rows).str.replace(r"^.*evaluate_function: ", "")


def outermost(parent: I64, wanted: Mask) -> I64:
    """From each row to the outermost around it, itself included, that is wanted; NONE where there is none."""
    around = nearest(wanted, parent)
    above = np.where(parent != NONE, around[parent], NONE)  # the nearest outside of it
    top = np.where(above != NONE, above, np.arange(len(parent)))
    while not np.array_equal(higher := top[top], top):  # steps double from round to round
        top = higher
    best: I64 = np.where(around != NONE, top[around], NONE)
    return best


def _makers(torch: TorchOps) -> I64:
    """Per row that is an outermost node, the forward op with its sequence number: the latest before it.

    An op that makes no node shares its number with the next one that does. Numbers are counted per thread: where ops of
    several threads have a node's number, there is no link.
    """
    frame = torch.frame.select(pl.int_range(pl.len()).alias("row"), "tid", "start_ns", "sequence", "node")
    frame = frame.with_columns(top=pl.Series(outermost(torch.nesting.parent, torch.frame["node"].to_numpy())))
    numbered = frame.drop_nulls("sequence").sort("start_ns")
    forward = numbered.filter(~pl.col("node") & ~pl.Series(torch.backward).gather(numbered["row"]))
    asked = numbered.filter("node").select("top", "sequence", "start_ns")
    alone = forward.filter(pl.col("tid").n_unique().over("sequence") == 1).select("sequence", "start_ns", maker="row")
    linked = asked.join_asof(alone, on="start_ns", by="sequence", check_sortedness=False).drop_nulls("maker")
    makers = np.full(torch.frame.height, NONE, dtype=np.int64)
    makers[linked["top"].to_numpy()] = linked["maker"].to_numpy()
    return makers

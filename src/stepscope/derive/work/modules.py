"""The module of the program that each GPU op belongs to, where the trace tells.

By what the program noted of the nodes of its CUDA graphs, else by `nn.Module` frames (torch.profiler with stacks), else
by ranges that are not a pass or a step (`capture run --ranges modules`, a framework's own). A backward op belongs to
the module of the forward op that made its node, by autograd's sequence numbers. Numbers of layers and instances go:
`model.layers.*.mlp`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.pytorch.frames import MODULE
from stepscope.derive.pytorch.passes import Passes
from stepscope.derive.rank.data import RankData
from stepscope.derive.work.launches import launching
from stepscope.derive.work.phases import PASS_RANGES
from stepscope.intervals.arrays import I64, NONE, Mask, numbered
from stepscope.model.nesting import Nesting, climb, nest
from stepscope.model.range_names import TORCH_OP

#: Ranges that say when something runs, not what: passes, steps, chunks, torch's own ops, compiled regions.
_NO_MODULE = "|".join(
    [
        *PASS_RANGES.values(),
        TORCH_OP,
        r"(?i)\b(step|iteration|iter|epoch|batch|micro-?batch|train(ing)?|data(loader)?|ProfilerStep|capture)\b",
        r"^(aten|autograd|c10d|nccl|cub|torch)\b|^Optimizer\.|Torch-Compiled|CompiledF|^\s*$|^rank=|=\d+;",
    ]
)
_NUMBERS = r"(^|[._ \[])\d+\b|_\d+$"


def modules(data: RankData, ops: I64) -> pl.Series:
    """The module of each op; null where nothing tells."""
    if not (data.launch[ops] != NONE).any():
        return pl.repeat(None, len(ops), dtype=pl.String, eager=True).alias("module")
    noted = noted_at_capture(data)
    module_of = _by_launch(data, ops)
    if noted is not None:
        by_node = by_text(noted["module"].gather(ops), _shortened)
        module_of = pl.select(pl.coalesce(by_node, module_of)).to_series()
    return module_of.alias("module")


def _shortened(texts: pl.Series) -> pl.Series:
    return texts.str.replace_all(_NUMBERS, "${1}*").str.strip_chars("*_")


def _by_launch(data: RankData, ops: I64) -> pl.Series:
    """By where and when each op was launched, and its forward op."""
    torch, frames = launching(data).torch, data.once(_frames)
    if frames is None and not (len(torch) and torch.backward.any()):
        return _by_ranges(data, data.enclosing(ops))  # which others have asked for, or will
    tid = np.full(len(ops), NONE, np.int64)
    at = data.launched_at[ops].copy()
    linked = data.launch[ops] != NONE
    tid[linked] = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[ops[linked]]]
    tid, at = _of_forward(data, tid, at)
    if frames is None:
        return _by_ranges(data, data.range_at(tid, at))
    names, nesting = frames
    row = nesting.enclosing(tid, at)
    return by_text(names.gather(pl.Series(row).replace(NONE, None)), _shortened)


def by_text(texts: pl.Series, shortened: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Texts of ops, shortened once per text: a million ops have a few."""
    distinct = texts.unique().drop_nulls()
    return texts.replace_strict(distinct, shortened(distinct), default=None, return_dtype=pl.String)


def _of_forward(data: RankData, tid: I64, at: I64) -> tuple[I64, I64]:
    """For launches within a backward node: where and when the forward op ran that made it."""
    torch = launching(data).torch
    if not len(torch) or not torch.backward.any():
        return tid, at
    _, _, maker = data.once(_passes).of(tid, at)
    made = maker != NONE
    thread, start = (torch.frame[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns"))
    rows = np.maximum(maker, 0)
    return np.where(made, thread[rows], tid), np.where(made, start[rows], at)


def _passes(data: RankData) -> Passes:
    return Passes(launching(data).torch)


def _frames(data: RankData) -> tuple[pl.Series, Nesting] | None:
    if not data.profile.has("host"):
        return None
    host = data.host.filter(pl.col("kind") == "python")
    if not host.height:
        return None
    called = pl.Series(data.profile.names_with(MODULE)[host["name"].to_numpy()])
    host = host.filter(called)
    if not host.height:
        return None
    tid, start, end = (host[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
    return data.profile.names.gather(host["name"]).str.extract(MODULE), nest(tid, start, end)


def _by_ranges(data: RankData, within: I64) -> pl.Series:
    """By the ranges around launches: texts of the few ranges there are, not of the many ops."""
    if data.ranges.height == 0:
        return pl.repeat(None, len(within), dtype=pl.String, eager=True)
    return data.once(_of_ranges).gather(np.where(within == NONE, data.ranges.height, within))


def _of_ranges(data: RankData) -> pl.Series:
    """The module of each range, and null for what is in none."""
    rows = climb(np.arange(data.ranges.height), data.once(_module_ranges), data.parents)
    names, of = numbered(data.ranges["name"].to_numpy()[np.maximum(rows, 0)])
    texts = pl.concat([_shortened(data.profile.names.gather(names)), pl.Series([None], dtype=pl.String)])
    return texts.gather(np.append(np.where(rows == NONE, len(names), of), len(names)))


def _module_ranges(data: RankData) -> Mask:
    own = np.zeros(data.ranges.height, bool)
    own[data.own_ranges] = True
    module_ranges: Mask = own & ~data.profile.names_with(_NO_MODULE)[data.ranges["name"].to_numpy()]
    return module_ranges

"""Modules of kernels that CUDA graphs replay, by an eager run of the same program (`--eager`).

A replay launches all its kernels at once, so that ranges and stacks say one thing of all of them. The same program
without graphs launches the same kernels one by one, within its modules. Of a kind of kernel (name, blocks, threads)
that the two windows have equally often, the n-th is the n-th, in the order of launches; of one that they do not, the
module is known only where all of the eager ones are of the same. Anything else stays unknown.
"""

from __future__ import annotations

import polars as pl

from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.rank.data import RankData, rank_of
from stepscope.derive.rank.graphs import graph_launch
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.work.modules import modules
from stepscope.derive.work.phases import in_order
from stepscope.derive.work.sizes import launches
from stepscope.errors import CannotAnswer
from stepscope.intervals.arrays import I64
from stepscope.model.capturing import capture_by
from stepscope.model.profile import Profile

_KIND = ["name", "blocks", "threads"]


def with_twins(data: RankData, ops: I64, module: pl.Series, eager: Profile | None) -> pl.Series:
    """The modules of some ops, with those of their eager twins where graphs replay them; `ops` are of one window."""
    if eager is None:
        return module
    replayed = pl.Series(graph_launch(data)[ops])
    noted = noted_at_capture(data)
    own = module.is_not_null() if noted is None else noted["module"].gather(ops).is_not_null()
    twin = _kinds(data, ops).join(eager.once(_eager, data.rank), on=_KIND, how="left", maintain_order="left")
    there = (twin["n"] == twin["n_right"]) & (twin["n"] > 0)
    of_twin = pl.select(
        pl.when(there).then(twin["modules"].list.get(twin["nth"], null_on_oob=True)).otherwise(twin["only"])
    ).to_series()
    taken = replayed & of_twin.is_not_null() & ~(own if noted is not None else pl.Series([False] * len(ops)))
    return pl.select(pl.when(taken).then(of_twin).otherwise(module)).to_series().alias("module")


def _kinds(data: RankData, ops: I64) -> pl.DataFrame:
    """By op: its kind, which of its kind it is in the order of launches, and how many there are."""
    shape = launches(data, ops)
    order = pl.Series(in_order(data, ops))
    frame = pl.DataFrame(
        {"name": data.profile.names.gather(data.name[ops]), "blocks": shape.blocks, "threads": shape.threads}
    )
    nth = frame[order].select(pl.int_range(pl.len()).over(_KIND).alias("nth")).with_columns(at=order).sort("at")["nth"]
    return frame.with_columns(nth, pl.len().over(_KIND).alias("n"))


def _eager(profile: Profile, rank: int) -> pl.DataFrame:
    """By kind of kernel: the modules of its launches in order, how many there are, and the module if it is one."""
    there = profile.rank_ids()
    data = rank_of(profile, rank if rank in there else there[0])
    spans = windows(profile, WindowSpec()).of(data.rank)
    if not spans:
        raise CannotAnswer("--eager: has no step on this rank", "give a capture of the same steps without CUDA graphs")
    ops = spans[0].ops
    module = modules(data, ops)
    if not module.count():
        raise CannotAnswer(
            "--eager: neither ranges nor stacks say which module launched a kernel", capture_by("--ranges modules")
        )
    frame = _kinds(data, ops).with_columns(module.alias("module")).sort("nth")
    one = pl.col("module").n_unique() == 1
    return frame.group_by(_KIND).agg(
        pl.col("module").alias("modules"),
        pl.len().alias("n"),
        pl.when(one).then(pl.col("module").first()).alias("only"),
    )

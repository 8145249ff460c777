"""Who launched each op, by the call stacks that nsys took at CUDA calls: Python frames, else native ones.

Stacks of a thread of the autograd engine have no Python frames: their backward ops are named by the C++ frames
(`AddmmBackward0`), and nothing in an nsys trace links them with the forward line.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.pytorch.frames import (
    BACKWARD,
    FORWARD,
    OPTIMIZE,
    OPTIMIZER,
    OTHER,
    Callers,
    is_engine,
    is_user,
    is_user_native,
    native_op,
    relative,
)
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, NONE

_CALL_OF_MODULE = "torch/nn/modules/module.py"


def callers(
    names: pl.Series, data: RankData, stacks: pl.DataFrame, calls: pl.DataFrame, ops: I64, full: bool, whole: bool
) -> Callers:
    """`stacks` and `calls` (with its detail) are the rank's; `whole` asks for the whole stacks too."""
    launch = pl.Series(data.launch[ops]).replace(NONE, None)
    chains = calls.select(native=pl.col("callchain").gather(launch), python=pl.col("python_chain").gather(launch))
    used = pl.concat([chains["native"], chains["python"]]).drop_nulls().unique()
    frames = stacks.filter(pl.col("chain").is_in(used.implode())).sort("chain", "depth")
    python = _python(names, frames.filter(pl.col("chain") < 0), full)
    native = _native(names, frames.filter(pl.col("chain") >= 0), full)
    found = chains.join(python, left_on="python", right_on="chain", how="left", maintain_order="left").join(
        native, left_on="native", right_on="chain", how="left", maintain_order="left", suffix="_native"
    )
    backward, optimizing, running = (found[c].fill_null(False).to_numpy() for c in ("engine", "optimizer", "module"))
    phase = np.where(backward, BACKWARD, np.where(optimizing, OPTIMIZE, np.where(running, FORWARD, OTHER)))
    nothing = pl.Series("module", [None] * len(ops), dtype=pl.String)
    return Callers(
        # A native frame of the user's says less than a Python one.
        found.select(pl.coalesce("frame", "frame_native"))["frame"],
        nothing,
        found["op"],
        phase,
        np.zeros(len(ops), dtype=bool),
        found.select(pl.coalesce("stack", "stack_native"))["stack"] if whole else None,
    )


def _python(names: pl.Series, frames: pl.DataFrame, full: bool) -> pl.DataFrame:
    file = relative(names.gather(frames["file"])).fill_null("")
    text = pl.select(
        file + "(" + frames["line"].cast(pl.String).fill_null("?") + "): " + names.gather(frames["name"])
    ).to_series()
    user = pl.Series(is_user(file)) | pl.lit(full)
    return (
        frames.select("chain")
        .with_columns(
            text=text,
            user=pl.select(user).to_series(),
            optimizer=file.str.contains(OPTIMIZER),
            module=file == _CALL_OF_MODULE,
        )
        .group_by("chain", maintain_order=True)
        .agg(
            pl.col("text").filter("user").first().alias("frame"),
            pl.col("optimizer").any(),
            pl.col("module").any(),
            _joined(),
        )
    )


def _native(names: pl.Series, frames: pl.DataFrame, full: bool) -> pl.DataFrame:
    symbol = names.gather(frames["name"])
    module = names.gather(frames["file"]).fill_null("")
    user = np.ones(len(symbol), dtype=bool) if full else is_user_native(module)
    plain = symbol.str.replace(r"\(.*$", "")
    return (
        frames.select("chain")
        .with_columns(
            text=pl.select(module.str.extract(r"([^/]*)$") + ": " + plain).to_series(),
            user=user,
            op=native_op(symbol),
            engine=is_engine(symbol),
        )
        .group_by("chain", maintain_order=True)
        .agg(
            pl.col("text").filter("user").first().alias("frame"),
            pl.col("op").drop_nulls().last(),  # the outermost: what the Python code, or the engine, called
            pl.col("engine").any(),
            _joined(),
        )
    )


def _joined() -> pl.Expr:
    clean = pl.col("text").str.replace_all(";", ":", literal=True)
    return clean.reverse().str.join(";").alias("stack")

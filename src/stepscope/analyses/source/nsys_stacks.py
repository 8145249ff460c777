"""Who launched each op, by the stacks in an nsys trace: Python frames, else native ones; and by torch's own ranges.

nsys takes a stack of some launch calls only: none of `cudaLaunchKernelExC`, by which cuBLAS launches, and none in
Python on a thread of the autograd engine. What is missing is inferred from stacks that were taken near it, at other
calls or by Python sampling (semantics §13), and said to be.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analyses.source.between import NO_CHAIN, Looks, shared
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
from stepscope.derive.pytorch.passes import Passes, outermost
from stepscope.derive.pytorch.torch_ops import TorchOps
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.libraries import library_calls
from stepscope.intervals.arrays import I64, NONE, Mask, take

_CALL_OF_MODULE = "torch/nn/modules/module.py"
#: The function of torch that runs the autograd engine and waits for it.
_BACKWARD_CALL = r"^torch/autograd/"


class NsysStacks:
    """The stacks of one rank; `stacks`, `calls` and `samples` are its tables, with their details."""

    def __init__(
        self,
        names: pl.Series,
        data: RankData,
        stacks: pl.DataFrame,
        calls: pl.DataFrame,
        samples: pl.DataFrame,
        torch: TorchOps,
    ) -> None:
        self._names, self._data, self._calls, self._torch = names, data, calls, torch
        self._frames = stacks
        self._call_chain = calls["python_chain"].fill_null(NO_CHAIN).to_numpy()
        here = np.flatnonzero(self._call_chain != NO_CHAIN)
        taken = samples.drop_nulls("chain")
        tid, at = (
            np.concatenate([calls[c].cast(pl.Int64).to_numpy()[here], taken[c].cast(pl.Int64).to_numpy()])
            for c in ("tid", "start_ns")
        )
        self._looks = Looks.of(tid, at, np.concatenate([self._call_chain[here], taken["chain"].to_numpy()]))
        self._passes = Passes(torch)

    def callers(self, ops: I64, full: bool, whole: bool) -> Callers:
        """`whole` asks for the whole stacks too."""
        data, names = self._data, self._names
        launch = data.launch[ops]
        tid = take(self._calls["tid"].cast(pl.Int64).to_numpy(), launch, NONE)
        at = data.launched_at[ops]
        torch_op, node, maker = self._passes.of(tid, at)
        exact = take(self._call_chain, launch, NO_CHAIN)
        chain, made = self._python_chains(exact, tid, at, torch_op, node, maker)
        native = pl.Series(take(self._calls["callchain"].fill_null(NONE).to_numpy(), launch, NONE)).replace(NONE, None)
        chains = pl.DataFrame({"native": native, "python": chain})
        used = pl.concat([chains["native"], chains["python"]]).drop_nulls().unique()
        recorded = self._frames.with_columns(line_to=pl.lit(None, pl.Int32)).drop("rank")
        frames = pl.concat([recorded, made.select(recorded.columns)])
        frames = frames.filter(pl.col("chain").is_in(used.implode())).sort("chain", "depth")
        recorded_chains = chains.join(
            _python(names, frames.filter(pl.col("chain") < NO_CHAIN), full),
            left_on="python",
            right_on="chain",
            how="left",
            maintain_order="left",
        ).join(
            _native(names, frames.filter(pl.col("chain") >= 0), full),
            left_on="native",
            right_on="chain",
            how="left",
            maintain_order="left",
            suffix="_native",
        )
        engine, optimizing, running = (
            recorded_chains[c].fill_null(False).to_numpy() for c in ("engine", "optimizer", "module")
        )
        backward = engine | (node != NONE)
        phase = np.where(backward, BACKWARD, np.where(optimizing, OPTIMIZE, np.where(running, FORWARD, OTHER)))
        phase[(phase == OTHER) & self._passes.makes(torch_op)] = FORWARD
        return Callers(
            # A native frame of the user's says less than a Python one.
            recorded_chains.select(pl.coalesce("frame", "frame_native"))["frame"],
            pl.repeat(None, len(ops), dtype=pl.String, eager=True).alias("module"),
            pl.select(
                pl.coalesce(self._passes.text(torch_op, node), recorded_chains["op"], self._library(tid, at))
            ).to_series(),
            phase,
            (maker != NONE) & (chain != NO_CHAIN) & (exact == NO_CHAIN),
            recorded_chains.select(pl.coalesce("stack", "stack_native"))["stack"] if whole else None,
            recorded_chains["frame"].is_not_null().to_numpy() & (exact == NO_CHAIN),
        )

    def _library(self, tid: I64, at: I64) -> pl.Series:
        """The outermost library call around each launch, `cuBLAS: cublasGemmEx`, in place of a torch op."""
        calls = library_calls(self._data)
        rows = outermost(calls.nesting.parent, np.ones(calls.frame.height, dtype=bool))
        texts = calls.frame["library"] + ": " + calls.frame["name"]
        return texts.gather(pl.Series(take(rows, calls.enclosing(tid, at), NONE)).replace(NONE, None))

    def _python_chains(
        self, exact: I64, tid: I64, at: I64, torch_op: I64, node: I64, maker: I64
    ) -> tuple[I64, pl.DataFrame]:
        """The Python stack of each launch, taken or inferred, and the frames of those that were put together.

        Within an outermost torch op Python stands still, so any stack taken in it is that of all its launches. A
        backward node has the stack of the forward op that made it. Else what the stacks before and after share.
        """
        torch = self._torch
        linked = maker != NONE
        of = np.where(linked, maker, np.where(node == NONE, torch_op, NONE))
        op_tid, op_start, op_end = (
            take(torch.frame[c].cast(pl.Int64).to_numpy(), of, NONE) for c in ("tid", "start_ns", "end_ns")
        )
        look = self._looks.within(op_tid, op_start, op_end)
        chain = np.where(exact != NO_CHAIN, exact, take(self._looks.chain, look, NO_CHAIN))
        missing = np.flatnonzero(chain == NO_CHAIN)
        when_tid = np.where(linked, op_tid, tid)[missing]
        when_at = np.where(linked, op_start, at)[missing]
        foreign = ~np.isin(when_tid, np.unique(self._looks.tid))
        inferred, made = self._shared(when_tid, when_at)
        chain[missing] = inferred
        # A thread without any Python stack is one of the engine's: its launches are those of who called backward.
        asked = missing[foreign]
        caller, more = self._caller(at[asked], made)
        chain[asked] = caller
        return chain, pl.concat([made, more])

    def _shared(self, tid: I64, at: I64, numbered: pl.DataFrame | None = None) -> tuple[I64, pl.DataFrame]:
        before, after = self._looks.around(tid, at)
        chains = [take(self._looks.chain, rows, NO_CHAIN) for rows in (before, after)]
        frames = self._frames.drop("rank")
        if numbered is not None:  # so that no number is given twice
            frames = pl.concat([frames, numbered.select(frames.columns)])
        return shared(frames, *chains)

    def _caller(self, at: I64, numbered: pl.DataFrame) -> tuple[I64, pl.DataFrame]:
        """What the thread that called `backward()` shares around each moment: the one that is in torch's autograd then.

        Where no stack shows that, the one thread that has Python stacks; nobody where there are several.
        """
        nobody = np.full(len(at), NO_CHAIN, dtype=np.int64), numbered.clear()
        threads = np.unique(self._looks.tid)
        if not len(at) or not len(threads):
            return nobody
        in_backward = self._chains_in(_BACKWARD_CALL)
        tid = np.full(len(at), threads[0] if len(threads) == 1 else NONE, dtype=np.int64)
        for thread in threads.tolist():
            before, after = self._looks.around(np.full(len(at), thread, dtype=np.int64), at)
            calling = take(in_backward, before, False) & take(in_backward, after, False)
            tid[calling] = thread
        return self._shared(tid, at, numbered)

    def _chains_in(self, pattern: str) -> Mask:
        """Per look: whether a frame of its stack is of a file that matches."""
        matches = relative(self._names.gather(self._frames["file"])).fill_null("").str.contains(pattern)
        chains = self._frames.filter(matches)["chain"].unique().to_numpy()
        return np.isin(self._looks.chain, chains)


def _python(names: pl.Series, frames: pl.DataFrame, full: bool) -> pl.DataFrame:
    file = relative(names.gather(frames["file"])).fill_null("")
    line = frames["line"].cast(pl.String).fill_null("?")
    to = pl.select(pl.concat_str(pl.lit("-"), frames["line_to"].cast(pl.String))).to_series().fill_null("")
    text = pl.select(file + "(" + line + to + "): " + names.gather(frames["name"])).to_series()
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

"""Who launched each op, by torch.profiler's stacks: Python frames and torch ops around the launch on its thread.

A backward node has no Python frames of its own: it runs on a thread of the autograd engine. It shares a sequence number
with the forward op that made it, and names that op's thread. So its kernels are credited to the Python line that ran
the forward op, unless code of the user's ran inside the node (a custom backward, recomputation).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.pytorch.frames import BACKWARD, FORWARD, MODULE, OPTIMIZE, OPTIMIZER, OTHER, Callers, is_user
from stepscope.derive.rank.data import RankData
from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.nesting import climb, nest

_ENGINE = "autograd::engine::evaluate_function: "
#: Host ops that wrap others and say nothing of the work.
_WRAPPERS = r"^(Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|## Call Compiled)|\(dynamo_timed\)"
#: Where an object lay: no part of what was called.
_ADDRESS = r"( object)? at 0x[0-9a-f]+"


class _Rows:
    """Host rows of some kinds, nested per thread. `NONE` is a row too: everything of it is `NONE`, false or 0."""

    def __init__(self, host: pl.DataFrame) -> None:
        self.frame = host
        self.name = host["name"].cast(pl.Int64).to_numpy()
        self.tid, self.start, end = (host[c].cast(pl.Int64).to_numpy() for c in ("tid", "start_ns", "end_ns"))
        self.nesting = nest(self.tid, self.start, end)
        self.parent = self.nesting.parent

    def are(self, of_names: Mask) -> Mask:
        """What is true of each row's name."""
        mask: Mask = of_names[self.name] if len(self.name) else np.zeros(0, dtype=bool)
        return mask

    def climb(self, rows: I64, wanted: Mask) -> I64:
        """From each row to the first, itself included, that is wanted; NONE where there is none."""
        return climb(rows, wanted, self.parent)

    def outermost(self, rows: I64) -> I64:
        return self.climb(rows, self.parent == NONE)

    def texts(self, names: pl.Series, rows: I64) -> pl.Series:
        return _gather(names, pick(self.name, rows, NONE))


def pick(values: npt.NDArray[Any], rows: I64, otherwise: int) -> npt.NDArray[Any]:
    """`values[rows]`, and `otherwise` for NONE."""
    picked = np.full(len(rows), otherwise, dtype=np.int64)
    hit = rows != NONE
    picked[hit] = values[rows[hit]]
    return picked


def _gather(texts: pl.Series, ids: I64) -> pl.Series:
    """Texts by id, null for NONE."""
    return texts.gather(pl.Series(ids, dtype=pl.Int64).replace(NONE, None))


class Stacks:
    """The frames and torch ops of one rank. `host` is its host table with the detail columns."""

    def __init__(self, names: pl.Series, data: RankData, host: pl.DataFrame) -> None:
        kind, wrapper = host["kind"], names.str.contains(_WRAPPERS).gather(host["name"])
        self._names, self._data = names, data
        self._frames = _Rows(host.filter(kind == "python"))
        self._torch = _Rows(host.filter(kind.is_in(["cpu_op", "compile"]) & ~wrapper))
        self._nodes = self._torch.are(names.str.starts_with(_ENGINE).to_numpy())
        #: Per torch op that is a backward node, the forward op that made it.
        self._made_by = _forward_of(self._torch, self._nodes)

    def callers(self, ops: I64, external: I64, full: bool, stacks: bool) -> Callers:
        """`external` are the torch ids of `ops`, NONE where there are none."""
        names, frames, torch = self._names, self._frames, self._torch
        tid, at = _launch(self._data, ops, external, torch)
        innermost = torch.nesting.enclosing(tid, at)
        node = torch.climb(innermost, self._nodes)
        backward = node != NONE
        within = frames.nesting.enclosing(tid, at)
        wanted = frames.are(np.ones(len(names), dtype=bool) if full else is_user(names))
        own = frames.climb(within, wanted)

        # Inside a node only frames that began in it are the node's; one from before is the caller of `backward()`.
        foreign = backward & (pick(frames.start, own, 0) < pick(torch.start, node, 0))
        forward = np.where(foreign, pick(self._made_by, node, NONE), NONE)
        linked = forward != NONE
        there = within.copy()
        there[linked] = frames.nesting.enclosing(torch.tid[forward[linked]], torch.start[forward[linked]])

        module = frames.climb(there, frames.are(names.str.contains(MODULE).to_numpy()))
        root = torch.outermost(innermost)
        phase = np.where(backward, BACKWARD, self._phase(innermost, within))
        return Callers(
            frames.texts(names, frames.climb(there, wanted)),
            frames.texts(names, module).str.extract(MODULE),
            torch.texts(names, np.where(backward, node, root)).str.strip_prefix(_ENGINE),
            phase,
            linked,
            _stack(names, frames, there) if stacks else None,
            np.zeros(len(ops), dtype=bool),
        )

    def _phase(self, op: I64, frame: I64) -> I64:
        """Of what runs in no backward node: torch's optimizers, modules, and ops that a backward node came of."""
        names, frames = self._names, self._frames
        optimizing, running = (
            frames.climb(frame, frames.are(names.str.contains(pattern).to_numpy())) != NONE
            for pattern in (OPTIMIZER, MODULE)
        )
        recorded = np.zeros(len(self._torch.name), dtype=bool)
        recorded[self._made_by[self._made_by != NONE]] = True
        running |= self._torch.climb(op, recorded) != NONE
        return np.where(optimizing, OPTIMIZE, np.where(running, FORWARD, OTHER))


def _launch(data: RankData, ops: I64, external: I64, torch: _Rows) -> tuple[I64, I64]:
    """Thread and moment of each launch; without a launch record, those of the torch op with the same id."""
    tid = np.full(len(ops), NONE, dtype=np.int64)
    at = data.launched_at[ops].copy()
    linked = data.launch[ops] != NONE
    tid[linked] = data.calls["tid"].to_numpy()[data.launch[ops[linked]]]
    lost = np.flatnonzero(~linked & (external > 0))
    by_id = pl.DataFrame({"id": torch.frame["external_id"], "row": np.arange(len(torch.name))})
    by_id = by_id.drop_nulls("id").unique("id", keep="last", maintain_order=True)
    asked = pl.DataFrame({"id": external[lost]}).join(by_id, on="id", how="left", maintain_order="left")
    row = asked["row"].fill_null(NONE).to_numpy()
    tid[lost] = pick(torch.tid, row, NONE)
    at[lost] = np.where(row != NONE, pick(torch.start, row, 0), at[lost])
    return tid, at


def _forward_of(torch: _Rows, nodes: Mask) -> I64:
    """The forward op of each row that is a backward node: the latest before it with its number, on its forward thread.

    An op that makes no node shares its sequence number with the next one that does: the latest is the maker. torch
    numbers threads in its own way (`fwd_tid`). A number is taken for the one thread whose ops match most of its nodes;
    where several threads match as many, there is no link.
    """
    links = np.full(len(nodes), NONE, dtype=np.int64)
    table = torch.frame.select(
        pl.int_range(pl.len()).alias("row"), "tid", "start_ns", "sequence", pl.col("fwd_tid").fill_null(0)
    )
    numbered = table.filter(pl.col("sequence").is_not_null()).sort("start_ns")
    asked = numbered.filter(pl.Series(nodes).gather(numbered["row"]) & (pl.col("fwd_tid") > 0)).drop("tid")
    made = numbered.filter(pl.col("fwd_tid") == 0).drop("fwd_tid").rename({"row": "maker"})
    parts = [
        asked.join_asof(mine, on="start_ns", by="sequence", check_sortedness=False).drop_nulls("maker")
        for _, mine in made.group_by("tid", maintain_order=True)
    ]
    if not parts:
        return links
    matched = pl.concat(parts)
    votes = matched.group_by("fwd_tid", "tid").agg(pl.len().alias("n"))
    best = votes.filter(pl.col("n") == pl.col("n").max().over("fwd_tid"))
    sure = best.filter(pl.len().over("fwd_tid") == 1).select("fwd_tid", "tid")
    kept = matched.join(sure, on=["fwd_tid", "tid"], how="semi")
    links[kept["row"].to_numpy()] = kept["maker"].to_numpy()
    return links


def _stack(names: pl.Series, frames: _Rows, rows: I64) -> pl.Series:
    """The texts from the outermost frame to each row, joined; equal texts at equal places are put together once."""
    needed = np.zeros(len(frames.name), dtype=bool)
    at = np.unique(rows[rows != NONE])
    while len(at):
        needed[at] = True
        at = np.unique(frames.parent[at])
        at = at[(at != NONE) & ~needed[at]]
    used = np.flatnonzero(needed)
    depth = frames.nesting.depth()[used]
    path = np.full(len(frames.name), NONE, dtype=np.int64)
    texts: list[str] = []
    for level in range(int(depth.max(initial=-1)) + 1):
        mine = used[depth == level]
        above = pick(path, frames.parent[mine], NONE)
        pairs, which = np.unique(np.stack([above, frames.name[mine]]), axis=1, return_inverse=True)
        path[mine] = len(texts) + which.reshape(-1)
        own = names.gather(pairs[1]).str.replace_all(";", ":", literal=True).str.replace(_ADDRESS, "")
        texts += [f"{texts[a]};{t}" if a != NONE else t for a, t in zip(pairs[0].tolist(), own, strict=True)]
    return _gather(pl.Series(texts, dtype=pl.String), pick(path, rows, NONE))

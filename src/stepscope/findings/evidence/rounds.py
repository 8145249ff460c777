"""Reductions of gradients in rounds that are alike, one for each micro-batch of a step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.comm.calls import sides_of
from stepscope.derive.comm.kinds import ALL_REDUCE, REDUCE_SCATTER
from stepscope.derive.rank.data import COMPUTE, RankData
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.intervals.arrays import I64
from stepscope.model.profile import Profile
from stepscope.model.threshold import Threshold

FORWARD_BETWEEN = Threshold(
    20.0,
    "% of the kernels of a round",
    "a forward pass is about a third of a micro-batch, and nothing is reduced in it",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_COVER = Threshold(
    70.0,
    "% of the kernels of the step",
    "rounds of all micro-batches fill the step but for its optimizer; buckets of one backward pass do not",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_DIFFER = Threshold(
    5.0,
    "% of the kernels of a round",
    "micro-batches launch the same kernels; layers of a forward and of a backward pass do not (tensor parallelism)",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_ADD = Threshold(
    35.0,
    "% of the kernels of a round",
    "from the second micro-batch on each gradient is added to what is there: a linear layer has two of six kernels",
    ("tests/findings/test_repeated_reduction.py",),
)
ROUNDS_MOST = Threshold(
    64,
    "rounds",
    "more micro-batches than that are not accumulated in a step of one rank",
    ("tests/findings/test_repeated_reduction.py",),
)


#: What only programs that train have: kernels, ops and ranges of backward passes and optimizers.
_TRAINS = r"(?i)backward|optimizer|_bwd|adam|multi_tensor_apply|wgrad|dgrad"


class Rounds(Struct, frozen=True):
    """Reductions of one rank's step in rounds that are alike: their ops, those of the last round left out."""

    times: int
    each: int
    bytes: int  # of one round
    ops: I64


def rounds(case: Case) -> dict[int, Rounds]:
    """By rank; nothing where a rank reduces once, as it should."""
    if case.kind == "capture":  # of a capture in which nothing marks steps, rounds may be its steps
        return {}
    if not case.profile.names_with(_TRAINS).any():  # without a backward pass there are no gradients
        return {}
    rounds = case.each_rank(_rounds)
    return {r: of for r, of in rounds.items() if of is not None}


def _rounds(profile: Profile, data: RankData, window: Window) -> Rounds | None:
    """The reductions of each communicator: the one whose rounds move most."""
    wanted = pl.col("kind").is_in([ALL_REDUCE, REDUCE_SCATTER]) & (pl.col("bytes") > 0)
    reductions = sides_of(profile, data).filter(wanted)
    inside = np.zeros(len(data.start), dtype=bool)
    inside[window.ops] = True
    reductions = reductions.filter(pl.Series(inside[reductions["op"].to_numpy()]))
    if reductions.height == 0:
        return None
    compute = window.ops[data.role[window.ops] == COMPUTE]
    compute = compute[np.argsort(data.launched_at[compute], kind="stable")]
    rounds = [
        found
        for table in reductions.partition_by("communicator", "kind", maintain_order=True)
        if (found := _repeated(data, table, compute)) is not None
    ]
    return max(rounds, key=lambda of: of.bytes, default=None)


def _repeated(data: RankData, table: pl.DataFrame, compute: I64) -> Rounds | None:
    # Numbers (a loss, a norm) are not gradients: less than a thousandth of the largest.
    table = table.filter(1000 * pl.col("bytes") >= pl.col("bytes").max()).unique("op", maintain_order=True)
    ops, size = table["op"].to_numpy(), table["bytes"].to_numpy()
    order = np.argsort(data.launched_at[ops], kind="stable")
    ops, size = ops[order], size[order]
    before = np.searchsorted(data.launched_at[compute], data.launched_at[ops])  # kernels launched before each
    for times in range(2, min(len(ops), int(ROUNDS_MOST.value)) + 1):
        each = len(ops) // times
        # Of one reduction each, nothing tells rounds from layers.
        if each < 2 or len(ops) % times or not (size.reshape(times, each) == size[:each]).all():
            continue
        at = before.reshape(times, each)
        period = float(np.median(np.diff(at[:, 0])))
        forward, within = at[1:, 0] - at[:-1, -1], int(np.diff(at, axis=1).max())
        between = bool((forward >= FORWARD_BETWEEN.share * period).all()) and int(forward.min()) > within
        if (
            between
            and times * period >= ROUNDS_COVER.share * len(compute)
            and _alike(data.name[compute].astype(np.int64), at[:, 0])
        ):
            return Rounds(times, each, int(size[:each].sum()), ops[:-each])
    return None


def _alike(names: I64, start: I64) -> bool:
    """Whether every round launches the same kernels: layers of a forward and of a backward pass do not.

    Nothing is added up in the first micro-batch: it may launch less than the others, but nothing that they do not.
    """
    first, *later = (np.bincount(names[a:b], minlength=int(names.max()) + 1) for a, b in pairwise(start.tolist()))
    if not later:
        return True
    second, *others = later
    few, most = ROUNDS_DIFFER.share * first.sum(), ROUNDS_ADD.share * first.sum()
    return (
        all(np.abs(other - second).sum() <= few for other in others)
        and np.maximum(first - second, 0).sum() <= few
        and np.maximum(second - first, 0).sum() <= most
    )

"""The kernels of a step that are worth a look inside: those that take most of its compute.

A *kind* is a function with a grid and a block, as in `matching`. Of identical layers one launch is enough; a kind whose
launches fall into groups of clearly different lengths needs as many as show each group once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.kernel.matching import GAP
from stepscope.derive.rank.data import COMPUTE, ranks_of
from stepscope.derive.rank.needs import need_ops
from stepscope.derive.windows.choosing import windows
from stepscope.derive.windows.spec import WindowSpec
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.kernel_names import function_name, short_names
from stepscope.model.profile import Profile

_SHAPE = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
#: Launches that are measured of one kind at most.
_MOST_WORKS = 4


class Suspect(Struct, frozen=True):
    """One kind: what it is called, how often it runs in the step, and for how long."""

    name: str
    function: str
    grid: str
    block: str
    launches: int
    #: launches from the first on that show each of its works
    needed: int
    total_ns: int
    share_pct: float


class Suspects(Struct, frozen=True):
    """The kinds to measure, of one rank and window; and how many kinds share their functions' names."""

    rank: int
    label: str
    kinds: list[Suspect]
    share_pct: float
    #: launches that a filter by name and kind lets through: of the suspects, and of others of the same function
    launches: int
    #: fewest launches in the window of any suspect: what a step is worth in launches
    least: int


def suspects_of(profile: Profile, window: WindowSpec, share: float, most: int) -> Suspects:
    """Kinds that together take `share` per cent of the compute of the window, `most` at most."""
    need_ops(profile)
    chosen = windows(profile, window)
    spans = ((d, w) for d in ranks_of(profile) for w in chosen.of(d.rank))
    works = ((d, w, w.ops[(d.role[w.ops] == COMPUTE) & d.is_kernel[w.ops]]) for d, w in spans)
    data, span, ops = next((each for each in works if len(each[2])), (None, None, None))
    if data is None or span is None or ops is None:
        raise CannotAnswer("no rank computes in this window, so there is nothing to measure", "give --whole")
    detail = dict(profile.by_rank("ops", detail=True))[data.rank]
    frame = detail[ops].select("name", *_SHAPE, ns=pl.col("end_ns") - pl.col("start_ns"))
    frame = frame.with_columns(at=pl.Series(data.launched_at[ops])).sort("at")
    kinds = frame.group_by("name", *_SHAPE, maintain_order=True).agg(pl.len(), pl.col("ns").sum().alias("total"), "ns")
    kinds = kinds.sort("total", descending=True)
    texts = profile.names.gather(kinds["name"])
    functions = [function_name(text) for text in texts]
    kinds = kinds.with_columns(function=pl.Series(functions, dtype=pl.String), short=short_names(texts))
    whole = int(kinds["total"].sum())
    before = (kinds["total"].cum_sum() - kinds["total"]).to_numpy()
    heavy = kinds.head(min(max(most, 0), int(np.count_nonzero(before < share / 100 * whole))))
    suspects = [_suspect(row, whole) for row in heavy.iter_rows(named=True)]
    if not suspects:
        raise BadInput(f"--share {share:g} and --most {most} leave no kernel to measure", "give more of both")
    same = kinds.filter(pl.col("function").is_in(heavy["function"].to_list()))
    return Suspects(
        data.rank,
        span.label,
        suspects,
        sum(kind.share_pct for kind in suspects),
        same.height * max(kind.needed for kind in suspects),
        min(kind.launches for kind in suspects),
    )


def _suspect(row: dict[str, Any], whole: int) -> Suspect:
    lengths = np.array(row["ns"], dtype=float)
    grid, block = ("x".join(str(row[f"{what}_{axis}"]) for axis in "xyz") for what in ("grid", "block"))
    total, count = int(lengths.sum()), len(lengths)
    needed = _needed(lengths)
    name, function = str(row["short"]), str(row["function"])
    return Suspect(name, function, grid, block, count, needed, total, 100.0 * total / whole if whole else 0.0)


def _needed(lengths: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """How many of the launches, from the first, it takes to see every group of lengths."""
    order = np.argsort(lengths, kind="stable")
    step = lengths[order][1:] / np.maximum(lengths[order][:-1], 1.0)
    group = np.empty(len(lengths), dtype=np.int64)
    group[order] = np.concatenate([[0], np.cumsum(step > GAP.value)])
    first = np.unique(group, return_index=True)[1]
    return int(min(first.max() + 1, _MOST_WORKS))

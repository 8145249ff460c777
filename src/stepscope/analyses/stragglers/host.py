"""A rank's host beside those of all other ranks: for how much longer its GPU had no work because the host was late.

The usual is the lower quartile: a fault may well be on half of the ranks (a late node of two), and it never makes
anything faster. Hosts of one job differ by chance, and those of one pipeline stage from those of another. So an excess
counts only if it is clear: either several times the usual or a large share of the capture; or the rank is far apart
from all others, which lie close together, and from those that do the same work.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.derive.peers.compute import WORTH_A_NAME
from stepscope.intervals.arrays import F64, Mask
from stepscope.model.threshold import Threshold

HOST_SPREADS = Threshold(
    6.0,
    "times the distance of the better ranks",
    "how far the better ones lie from each other is chance",
    ("tests/reliability/agreement.py", "decision 0018"),
)
HOST_TIMES = Threshold(
    2.5,
    "times the usual lateness",
    "hosts of healthy captures come to 2.2, planted faults from 2.8 on",
    ("tests/data/moe_reference", "decision 0018"),
)
HOST_MUCH = Threshold(
    10.0,
    "% of the capture",
    "hosts of healthy captures come to 5.6, planted faults to 36",
    ("tests/data/moe_reference", "decision 0018"),
)
HOST_LEAST = Threshold(
    0.5,
    "% of the capture",
    "nobody would notice less",
    ("tests/reliability/agreement.py", "decision 0018"),
)


def host_excess(own: pl.DataFrame, groups: Mapping[int, str], whole: set[int], span_ns: float) -> pl.DataFrame:
    """Per rank of `own` (`lateness.OWN`): rank, named, host_ns and data_ns beyond the usual, zero where not clear.

    `elsewhere_ns`: what of it is not getting input. Ranks that are not `whole` recorded too little to be compared.
    """
    ranks = own["rank"].to_list()
    compared = np.array([rank in whole for rank in ranks])
    same = np.array([groups[rank] for rank in ranks])[compared]
    columns = {"host": own["host_ns"], "data": own["data_ns"], "elsewhere": own["host_ns"] - own["data_ns"]}
    values = {name: column.to_numpy().astype(np.float64)[compared] for name, column in columns.items()}
    late = {name: np.zeros(own.height) for name in columns}
    if compared.sum() > 1:
        late["host"][compared] = np.where(_clear(values["host"], same, span_ns), _beyond(values["host"]), 0)
        late["data"][compared] = _at_least(_beyond(values["data"]), WORTH_A_NAME.share * span_ns)
        late["elsewhere"][compared] = np.maximum(_beyond(values["elsewhere"]), 0)
    return own.select("rank", "named", *(pl.Series(f"{c}_ns", late[c].astype(np.int64)) for c in columns))


def _usual(values: F64) -> tuple[float, float]:
    """The usual, and by how much the best is better."""
    ordered = np.sort(values)
    # Of two, the better one; of more, never the best itself: its distance to the usual says how much is chance.
    usual = float(ordered[max((len(ordered) - 1) // 4, min(1, len(ordered) - 2))])
    return usual, usual - float(ordered[0])


def _beyond(values: F64) -> F64:
    """How far each is above the usual, where that is beyond what the better ones differ by."""
    usual, spread = _usual(values)
    excess = values - usual
    return np.where(excess > HOST_SPREADS.value * spread, excess, np.minimum(excess, 0))


def _clear(values: F64, groups: npt.NDArray[np.str_], span_ns: float) -> Mask:
    """Ranks whose lateness is significant."""
    usual, _ = _usual(values)
    excess = _beyond(values)
    large = excess >= min((HOST_TIMES.value - 1) * usual, HOST_MUCH.share * span_ns)
    names, group = np.unique(groups, return_inverse=True)
    members = [np.sort(values[group == k]) for k in range(len(names))]
    size = np.array([len(of_group) for of_group in members])
    better = np.array([of_group[(len(of_group) - 1) // 4] for of_group in members])[group]
    of_its_own = (size[group] == 1) | (2 * (values - better) >= excess)  # not only its stage's
    # Where stages have ranks enough to tell what is usual in each, that is not in the way.
    middle = np.array([float(np.median(of_group)) for of_group in members])[group] if size.min() > 2 else 0.0
    chosen: Mask = (excess >= HOST_LEAST.share * span_ns) & (large | (_apart(values - middle) & of_its_own))
    return chosen


def _apart(values: F64) -> Mask:
    """Values above the widest gap, where that is wide beside all that lies below it."""
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    split = int(np.argmax(gaps))
    below = float(ordered[split] - ordered[0])
    if split < 1 or gaps[split] <= HOST_SPREADS.value * below:
        return np.zeros(len(values), dtype=bool)
    above: Mask = values > ordered[split]
    return above


def _at_least(excess: F64, least_ns: float) -> F64:
    return np.where(excess >= least_ns, excess, 0)

"""What a what-if changes in a step before it is replayed (`_runs`, `_replay`).

Small and picklable: it travels to wherever a rank is read. By-rank entries index the rank's own ops, calls and syncs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepscope.intervals import Spans

I64 = npt.NDArray[np.int64]
_NOTHING: I64 = np.empty(0, np.int64)


@dataclass(frozen=True)
class Change:
    """Nothing, by default. Factors divide time; `inf` makes it vanish."""

    #: the host's own time between calls is divided by this: per rank, and for all other ranks
    host: Mapping[int, float] = field(default_factory=dict)
    every_host: float = 1.0
    #: host time in these stretches (rank's own clock) never passes
    cut: Mapping[int, Spans] = field(default_factory=dict)
    #: calls that no longer wait for the GPU, and take no time
    unheld: Mapping[int, I64] = field(default_factory=dict)
    #: rows of `syncs`: waits of streams for events that are not made
    unwaited: Mapping[int, I64] = field(default_factory=dict)
    #: communication ops that get a stream of their own, after what was before them
    aside: Mapping[int, I64] = field(default_factory=dict)
    #: durations of kernels: factor by rank and name, and by rank and op
    kernels: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    ops: Mapping[int, tuple[I64, npt.NDArray[np.float64]]] = field(default_factory=dict)
    #: ops that follow the one before them on their stream without a gap: as if they were one
    fused: Mapping[int, I64] = field(default_factory=dict)
    #: transfers take no time; with `stage`, only those of that stage
    hide: bool = False
    stage: str | None = None
    #: transfers that are shorter by so many ns, by meeting (row of `Across.meetings`)
    shorter: Mapping[int, int] = field(default_factory=dict)

    def of(self, entries: Mapping[int, I64], rank: int) -> I64:
        """The rows of one rank."""
        return entries.get(rank, _NOTHING)

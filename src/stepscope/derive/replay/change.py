"""What a what-if changes in a step before it is replayed (`graph`, `replay`).

Small and picklable: it travels to wherever a rank is read. By-rank entries index the rank's own ops, calls and syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import mul
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, field

from stepscope.intervals import Spans, join
from stepscope.intervals.arrays import F64, I64

K = TypeVar("K")
V = TypeVar("V")
_NOTHING: I64 = np.empty(0, np.int64)


class Change(Struct, frozen=True):
    """Nothing, by default. Factors divide time; `inf` makes it vanish."""

    #: the host's own time between calls is divided by this: per rank, and for all other ranks
    host_factor: Mapping[int, float] = field(default_factory=dict)
    every_host_factor: float = 1.0
    #: host time in these stretches (rank's own clock) never passes
    host_time_cut: Mapping[int, Spans] = field(default_factory=dict)
    #: calls that no longer wait for the GPU, and take no time
    calls_not_waiting: Mapping[int, I64] = field(default_factory=dict)
    #: rows of `syncs`: waits of streams for events that are not made
    stream_waits_dropped: Mapping[int, I64] = field(default_factory=dict)
    #: communication ops that get a stream of their own, after what was before them: ops, and which new stream of each
    own_stream: Mapping[int, tuple[I64, I64]] = field(default_factory=dict)
    #: the host begins the step so much earlier, by rank; later, where that is less than nothing
    host_start_earlier_ns: Mapping[int, int] = field(default_factory=dict)
    #: durations of kernels: factor by rank and name, and by rank and op
    kernel_factor: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    op_factor: Mapping[int, tuple[I64, F64]] = field(default_factory=dict)
    #: ops that follow the one before them on their stream without a gap: as if they were one
    ops_fused: Mapping[int, I64] = field(default_factory=dict)
    #: transfers take no time; with `hidden_stage`, only those of that stage
    transfers_hidden: bool = False
    hidden_stage: str | None = None
    #: transfers that are shorter by so many ns, by meeting (row of `Across.meetings`)
    transfer_less_ns: Mapping[int, int] = field(default_factory=dict)
    #: ops whose rank leaves them so much sooner after the others: ops, and ns of each (the rank's own bytes are fewer)
    departure_less_ns: Mapping[int, tuple[I64, I64]] = field(default_factory=dict)
    #: communication ops whose transfer takes no time
    transfers_instant: Mapping[int, I64] = field(default_factory=dict)

    def of(self, entries: Mapping[int, I64], rank: int) -> I64:
        """The rows of one rank."""
        return entries.get(rank, _NOTHING)

    @property
    def local(self) -> set[int] | None:
        """Ranks whose own graph differs by this change; None: all of them. What transfers take is not a rank's own."""
        if self.every_host_factor != 1.0 or self.transfers_hidden:
            return None
        return {rank for part in self._local_parts for rank in part}

    @property
    def _local_parts(self) -> tuple[Mapping[int, Any], ...]:
        return tuple(getattr(self, name) for name in _LOCAL)

    def is_on_host(self, rank: int) -> bool:
        """Whether a rank's host does anything else, or sooner, than it did."""
        cut, unheld = self.host_time_cut.get(rank), self.of(self.calls_not_waiting, rank)
        return self.host_factor.get(rank, self.every_host_factor) != 1.0 or bool(cut) or len(unheld) > 0

    def on(self, rank: int) -> tuple[Any, ...]:
        """What the change has for one rank's own graph: the same objects, the same graph."""
        return tuple(part.get(rank) for part in self._local_parts)

    def __and__(self, other: Change) -> Change:
        """Both changes at once; of two factors for one thing, the product, of two cuts, their sum."""
        stages = {c.hidden_stage for c in (self, other) if c.transfers_hidden}
        return Change(
            every_host_factor=self.every_host_factor * other.every_host_factor,
            transfers_hidden=bool(stages),
            hidden_stage=stages.pop() if len(stages) == 1 else None,
            **{name: _merged(getattr(self, name), getattr(other, name), combine) for name, combine in _BOTH.items()},
        )


#: Fields that change one rank's own graph.
_LOCAL = (
    "host_factor",
    "host_time_cut",
    "calls_not_waiting",
    "stream_waits_dropped",
    "own_stream",
    "kernel_factor",
    "op_factor",
    "ops_fused",
)


def _merged(a: Mapping[K, V], b: Mapping[K, V], combine: Callable[[V, V], V]) -> dict[K, V]:
    return {k: combine(a[k], b[k]) if k in a and k in b else a[k] if k in a else b[k] for k in {**a, **b}}


def _rows(a: tuple[I64, I64], b: tuple[I64, I64]) -> tuple[I64, I64]:
    """Values by op, those of `a` where both have one."""
    ops, first = np.unique(np.concatenate([a[0], b[0]]), return_index=True)
    return ops, np.concatenate([a[1], b[1]])[first]


def _factors(a: tuple[I64, F64], b: tuple[I64, F64]) -> tuple[I64, F64]:
    """Factors by op, multiplied where both have one."""
    ops, at = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    product = np.ones(len(ops))
    np.multiply.at(product, at, np.concatenate([a[1], b[1]]))
    return ops, product


#: What two entries for the same rank or meeting become.
_BOTH: dict[str, Callable[[Any, Any], Any]] = {
    "host_factor": mul,
    "host_time_cut": join,
    "calls_not_waiting": np.union1d,
    "stream_waits_dropped": np.union1d,
    "own_stream": _rows,
    "host_start_earlier_ns": max,
    "kernel_factor": lambda a, b: _merged(a, b, mul),
    "op_factor": _factors,
    "ops_fused": np.union1d,
    "transfer_less_ns": max,
    "departure_less_ns": _rows,
    "transfers_instant": np.union1d,
}

"""What a what-if changes in a step before it is replayed (`graph`, `replay`).

Small and picklable: it travels to wherever a rank is read. By-rank entries index the rank's own ops, calls and syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from stepscope.intervals import Spans, union

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
K = TypeVar("K")
V = TypeVar("V")
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
    #: communication ops that get a stream of their own, after what was before them: ops, and which new stream of each
    aside: Mapping[int, tuple[I64, I64]] = field(default_factory=dict)
    #: the host begins the step so much earlier, by rank
    earlier: Mapping[int, int] = field(default_factory=dict)
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
    #: ops whose rank leaves them so much sooner after the others: ops, and ns of each (the rank's own bytes are fewer)
    sooner: Mapping[int, tuple[I64, I64]] = field(default_factory=dict)
    #: communication ops whose transfer takes no time
    instant: Mapping[int, I64] = field(default_factory=dict)

    def of(self, entries: Mapping[int, I64], rank: int) -> I64:
        """The rows of one rank."""
        return entries.get(rank, _NOTHING)

    @property
    def local(self) -> set[int] | None:
        """Ranks whose own graph differs by this change; None: all of them. What transfers take is no rank's own."""
        if self.every_host != 1.0 or self.hide:
            return None
        return {rank for part in self._local_parts for rank in part}

    @property
    def _local_parts(self) -> tuple[Mapping[int, Any], ...]:
        return self.host, self.cut, self.unheld, self.unwaited, self.aside, self.kernels, self.ops, self.fused

    def on(self, rank: int) -> tuple[Any, ...]:
        """What the change has for one rank's own graph: the same objects, the same graph."""
        return tuple(part.get(rank) for part in self._local_parts)

    def __and__(self, other: Change) -> Change:
        """Both changes at once; of two factors for one thing, the product, of two cuts, their sum."""
        hide = self.hide or other.hide
        return Change(
            host=_merged(self.host, other.host, lambda a, b: a * b),
            every_host=self.every_host * other.every_host,
            cut=_merged(self.cut, other.cut, _spans),
            unheld=_merged(self.unheld, other.unheld, np.union1d),
            unwaited=_merged(self.unwaited, other.unwaited, np.union1d),
            aside=_merged(self.aside, other.aside, _rows),
            earlier=_merged(self.earlier, other.earlier, max),
            kernels=_merged(self.kernels, other.kernels, lambda a, b: _merged(a, b, lambda x, y: x * y)),
            ops=_merged(self.ops, other.ops, _factors),
            fused=_merged(self.fused, other.fused, np.union1d),
            hide=hide,
            stage=self.stage if not other.hide else other.stage if not self.hide else None,
            shorter=_merged(self.shorter, other.shorter, max),
            sooner=_merged(self.sooner, other.sooner, _rows),
            instant=_merged(self.instant, other.instant, np.union1d),
        )


def _merged(a: Mapping[K, V], b: Mapping[K, V], both: Callable[[V, V], V]) -> dict[K, V]:
    return {k: both(a[k], b[k]) if k in a and k in b else a[k] if k in a else b[k] for k in {**a, **b}}


def _spans(a: Spans, b: Spans) -> Spans:
    return union(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


def _rows(a: tuple[I64, I64], b: tuple[I64, I64]) -> tuple[I64, I64]:
    """Values by op, those of `a` where both have one."""
    ops, first = np.unique(np.concatenate([a[0], b[0]]), return_index=True)
    return ops, np.concatenate([a[1], b[1]])[first]


def _factors(a: tuple[I64, F64], b: tuple[I64, F64]) -> tuple[I64, F64]:
    """Factors by op, multiplied where both have one."""
    ops, at = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    found = np.ones(len(ops))
    np.multiply.at(found, at, np.concatenate([a[1], b[1]]))
    return ops, found

"""The compute of each rank's step in the order of its launches: what each kernel does, how much, and in which pass.

Detectors of wasteful compute read it as a person reads a timeline: products are the landmarks, and what lies between
two of them (a *stretch*) works on what the one gave, for the other. Kernels that are whole by themselves, a norm or a
softmax, part a stretch into *segments*.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.work.phases import AGAIN, BACKWARD, OPTIMIZER, phases
from stepscope.derive.work.roles import Kernels, Role, kernels
from stepscope.derive.work.rules import MULTIPLYING
from stepscope.derive.work.sizes import GRID, Sizes, sizes
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host, each_host
from stepscope.intervals.arrays import F64, I64, NONE, Mask
from stepscope.model.memo import cached_property
from stepscope.model.threshold import Threshold

SMALL_TENSOR = Threshold(
    65536,
    "elements",
    "kernels on fewer are over before memory matters: weights of a norm, sums of rows",
    ("tests/findings/test_waste_pairs.py",),
)
SAME_SIZE = Threshold(
    2.0,
    "% of the elements",
    "launches round up to whole blocks; tensors of another shape differ by more",
    ("tests/findings/test_waste_pairs.py",),
)


_HEAVY = tuple(MULTIPLYING)
#: Kernels that are an op of a model by themselves.
_WHOLE = (Role.NORM, Role.SOFTMAX, Role.LOSS, Role.POOLING, Role.EMBEDDING, Role.FUSED, Role.SORT)
I8 = np.ndarray[tuple[int], np.dtype[np.int8]]


class Sequence(Struct, frozen=True, dict=True):
    """One rank's compute, by position: kernels, and copies and memsets within the device."""

    host: Host
    ops: I64
    kinds: Kernels
    sizes: Sizes
    phase: I8

    @property
    def data(self) -> RankData:
        return self.host.data

    @property
    def role(self) -> I8:
        return self.kinds.role

    @cached_property
    def ns(self) -> I64:
        return (self.data.end - self.data.start)[self.ops]

    @cached_property
    def heavy(self) -> Mask:
        """Products, convolutions and fused attention."""
        heavy: Mask = self.kinds.are(*_HEAVY) & self.kinds.matrix
        return heavy

    @cached_property
    def stretch(self) -> I64:
        """How many landmarks came before; a landmark is of the stretch behind it."""
        return np.cumsum(self.heavy)

    @cached_property
    def segment(self) -> I64:
        """The same, with kernels that are whole by themselves."""
        return np.cumsum(self.heavy | self.kinds.are(*_WHOLE))

    @cached_property
    def back(self) -> Mask:
        """Of the backward pass."""
        mask: Mask = self.phase == BACKWARD
        return mask

    @cached_property
    def again(self) -> Mask:
        """Of the forward pass, for the second time."""
        mask: Mask = self.phase == AGAIN
        return mask

    @cached_property
    def optimizer(self) -> Mask:
        optimizer: Mask = self.phase == OPTIMIZER
        return optimizer

    @cached_property
    def elements(self) -> F64:
        """Of each kernel; where its launch does not say (reductions, copies), those of what it works on: its neighbour
        in the segment. NaN for small tensors, and where nothing tells."""
        elements = np.where(self.sizes.elements >= SMALL_TENSOR.value, self.sizes.elements, np.nan)
        open_ = np.isnan(self.sizes.elements) & self.kinds.are(Role.REDUCTION, Role.COPY, Role.RANDOM)
        filled = _carried(elements, self.segment)
        filled = np.where(np.isnan(filled), _carried(elements[::-1], self.segment[::-1])[::-1], filled)
        return np.where(open_, filled, elements)

    @cached_property
    def size_class(self) -> I64:
        """A number that tensors of the same size share; NONE where the size is not known."""
        logs = np.log(np.where(np.isnan(self.elements), 1.0, self.elements))
        return np.where(np.isnan(self.elements), NONE, np.round(logs / SAME_SIZE.share)).astype(np.int64)

    @cached_property
    def by_grid(self) -> Mask:
        """Whether bytes are known, not only bounded."""
        return self.sizes.source >= GRID

    def let_go(self) -> None:
        """Forget what was derived: it is again where somebody asks for it."""
        self.__dict__.clear()

    def between(self, first: int, last: int) -> I64:
        """Positions between two."""
        return np.arange(first + 1, last)


def _carried(values: F64, segment: I64) -> F64:
    """The last value before each position, in its segment."""
    at = np.where(np.isnan(values), -1, np.arange(len(values)))
    last = np.maximum.accumulate(at) if len(at) else at
    same = (last >= 0) & (segment[np.maximum(last, 0)] == segment)
    return np.where(same, values[np.maximum(last, 0)], np.nan)


def sequences(case: Case) -> dict[int, Sequence]:
    """By rank; made once per case."""
    return case.once(_sequences)


def _sequences(case: Case) -> dict[int, Sequence]:
    return each_host(case, _sequence)


def _sequence(host: Host) -> Sequence:
    data = host.data
    ops = host.window.ops[host.on_device[host.window.ops] & (data.launch[host.window.ops] != NONE)]
    ops = ops[np.argsort(data.launched_at[ops], kind="stable")]
    kinds = kernels(data, ops)
    return Sequence(host, ops, kinds, sizes(data, ops, kinds), phases(data, ops, kinds).phase)

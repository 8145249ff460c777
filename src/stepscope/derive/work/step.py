"""Everything that `derive/work` knows of the ops of one window, worked out together once."""

from __future__ import annotations

from msgspec import Struct

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import Window
from stepscope.derive.work.arithmetic import Arithmetic, arithmetic
from stepscope.derive.work.chains import Chains, chains
from stepscope.derive.work.good import Good, good
from stepscope.derive.work.parts import Parts, parts
from stepscope.derive.work.phases import Phases, phases
from stepscope.derive.work.roles import Kernels, kernels
from stepscope.derive.work.sizes import Sizes, gpu, sizes
from stepscope.intervals.arrays import I64
from stepscope.model.gpus import Gpu


class StepWork(Struct, frozen=True):
    """`ops`: rows of the rank's ops; all else by row of these."""

    ops: I64
    length: I64
    gpu: Gpu | None
    kinds: Kernels
    passes: Phases
    parts: Parts
    sizes: Sizes
    chains: Chains
    done: Arithmetic
    good: Good


class _Of:
    """The ops of a window as a key: a window is the same where its edges are."""

    def __init__(self, span: Window) -> None:
        self.ops = span.ops
        self._key = (span.kind, span.index, span.gpu_start_ns, span.gpu_end_ns, len(span.ops))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Of) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def step_work(data: RankData, span: Window) -> StepWork:
    """The work of a window's ops, worked out once."""
    return data.once(_of_window, _Of(span))


def _of_window(data: RankData, which: _Of) -> StepWork:
    return work_of_ops(data, which.ops)


def work_of_ops(data: RankData, ops: I64) -> StepWork:
    """The work of these ops: those of one window, since passes and chains are looked for among them."""
    device = gpu(data)
    kinds = kernels(data, ops)
    passes, size = phases(data, ops, kinds), sizes(data, ops, kinds)
    done = arithmetic(data, ops, kinds, device)
    return StepWork(
        ops,
        (data.end - data.start)[ops],
        device,
        kinds,
        passes,
        parts(data, ops, kinds, passes),
        size,
        chains(data, ops, kinds, passes, size),
        done,
        good(data, ops, kinds, size, done, device),
    )

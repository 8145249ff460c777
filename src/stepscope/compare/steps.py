"""Which stretches of GPU time are compared: the steps of a rank, one after the other.

A step is its period, as everywhere (`derive.windows.periods`): what a data loader or an optimizer does between two
steps counts, and nothing counts twice. Steps that were not recorded whole are not samples (`derive.windows.samples`). A
capture without marks is one step. `--chunk` compares a pipeline's chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.periods import periods, periods_of
from stepscope.derive.windows.samples import Samples, samples_of
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import Anchors, is_chunk, marks_of, matching, recurring
from stepscope.derive.windows.window import Window, by_launch, of_step, whole_capture
from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64

Kind = Literal["step", "chunk", "whole"]


@dataclass(frozen=True)
class StepSpec:
    """How the user chose what is compared."""

    anchor: str | None = None
    whole: bool = False
    warmup: int = 0
    unit: Literal["step", "chunk"] | None = None

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise BadInput(f"--warmup {self.warmup}: negative", "give 0 or more")
        if self.whole and (self.anchor is not None or self.warmup or self.unit is not None):
            raise BadInput("--whole excludes --anchor, --chunk, --step and --warmup", "give one")
        if self.anchor is not None and self.unit is not None:
            raise BadInput(f"--anchor and --{self.unit} cannot be combined", "give one")
        WindowSpec(anchor=self.anchor)  # refuses what is not a pattern


@dataclass(frozen=True)
class Steps:
    """The steps of one rank on its own clock. What a step is called, and where it lies in GPU time."""

    kind: Kind
    label: list[str]
    start: I64
    end: I64
    #: which steps count, where they are steps
    samples: Samples | None = None


def steps_of(data: RankData, spec: StepSpec) -> Steps | None:
    """The rank's steps; None where it has no GPU work in any."""
    if not len(data.start):
        return None
    kind, measured, sampled = _measured(data, spec)
    busy = [w for w in measured if w.gpu_start_ns is not None and w.gpu_end_ns is not None]
    if sampled is None:
        busy = busy[spec.warmup :]
    else:  # the first ones are warm-up, whether they count or not
        busy = [w for w in busy if sampled.counted[w.index] and w.index >= spec.warmup]
    if not busy:
        return None
    start, end = (np.array([getattr(w, e) for w in busy], np.int64) for e in ("gpu_start_ns", "gpu_end_ns"))
    return Steps(kind, [w.label for w in busy], start, end, sampled)


def host_steps(data: RankData, spec: StepSpec) -> Steps | None:
    """The rank's steps on the host, where nothing of the GPU was recorded; None where nothing marks them."""
    steps = None if spec.whole or spec.unit == "chunk" else periods(data)
    if spec.anchor is not None and (given := matching(data, spec.anchor)) is not None:
        steps = periods_of(data, recurring(given) or given)
    if steps is None:
        return None
    sampled = samples_of(data, steps)
    rows = [k for k in np.flatnonzero(sampled.counted).tolist() if k >= spec.warmup and sampled.lengths[k]]
    if not rows:
        return None
    return Steps("step", [steps.anchors.label[k] for k in rows], steps.cpu[:-1][rows], steps.cpu[1:][rows], sampled)


def _measured(data: RankData, spec: StepSpec) -> tuple[Kind, list[Window], Samples | None]:
    """What is compared, its instances, and which of them count."""
    if spec.unit == "chunk":
        return "chunk", _chunks(data, marks_of(data).chunks), None
    steps = None if spec.whole else periods(data)
    if spec.anchor is not None:
        given = matching(data, spec.anchor)
        if given is None:
            return "step", [], None
        again = recurring(given)
        if again is None and is_chunk(data, given.label[0]):
            return "chunk", _chunks(data, given), None
        steps = periods_of(data, again or given)
    if steps is None:
        return "whole", [whole_capture(data)], None
    windows = [of_step(steps, k) for k in np.flatnonzero(steps.lengths).tolist()]
    return "step", windows, samples_of(data, steps)


def _chunks(data: RankData, anchors: Anchors | None) -> list[Window]:
    return [] if anchors is None else [by_launch(data, anchors, k, "chunk") for k in range(len(anchors))]

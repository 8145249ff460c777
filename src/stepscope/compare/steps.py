"""Which stretches of GPU time are compared: the steps of a rank, one after the other.

By default a step lasts from its first op to the first op of the next one: what a data loader or an optimizer does
between two steps counts, and nothing counts twice. The last step has no next one, and is left out with the drain of
the pipeline. Chunks are compared where the capture holds no more than one step of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import Anchors, is_chunk, marks_of, matching, recurring
from stepscope.derive.windows.window import WHOLE, by_launch
from stepscope.errors import BadInput
from stepscope.intervals.arrays import I64

Kind = Literal["step", "chunk", "whole"]


@dataclass(frozen=True)
class StepSpec:
    """How the user chose what is compared."""

    anchor: str | None = None
    #: to the next one's first op; else each step's own ops only
    period: bool = True
    whole: bool = False
    warmup: int = 0
    #: what is compared, whatever else the capture has: to compare two captures alike
    unit: Literal["step", "chunk"] | None = None

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise BadInput(f"--warmup {self.warmup}: negative", "give 0 or more")
        if self.whole and (self.anchor is not None or self.warmup):
            raise BadInput("--whole excludes --anchor and --warmup", "give one")
        WindowSpec(anchor=self.anchor)  # refuses what is no pattern


@dataclass(frozen=True)
class Steps:
    """The steps of one rank on its own clock. What a step is called, and where it lies in GPU time."""

    kind: Kind
    label: list[str]
    start: I64
    end: I64
    period: bool  # they end where the next one begins


def steps_of(data: RankData, spec: StepSpec) -> Steps | None:
    """The rank's steps; None where it has no GPU work in any."""
    kind, anchors = ("whole", None) if spec.whole else _anchors(data, spec)
    if anchors is None:
        if spec.anchor is not None or spec.unit is not None or not len(data.start):
            return None
        first, last = int(data.start.min()), int(data.end.max())
        return Steps("whole", [WHOLE], np.array([first]), np.array([last]), False)
    count = len(anchors)
    period = spec.period and count > 1
    measured = [by_launch(data, anchors, k, period) for k in range(count - period)][spec.warmup :]
    busy = [w for w in measured if w.gpu_start_ns is not None and w.gpu_end_ns is not None]
    if not busy:
        return None
    start, end = (np.array([getattr(w, e) for w in busy], np.int64) for e in ("gpu_start_ns", "gpu_end_ns"))
    return Steps(kind, [w.label for w in busy], start, end, period)


def _anchors(data: RankData, spec: StepSpec) -> tuple[Kind, Anchors | None]:
    """What is compared, and its instances."""
    if spec.anchor is not None:
        given = matching(data, spec.anchor)
        repeats = None if given is None else recurring(given)
        chunks = given is not None and repeats is None and is_chunk(given.label[0])
        return "chunk" if chunks else "step", repeats or given
    marks = marks_of(data)
    if spec.unit is not None:
        return spec.unit, marks.chunks if spec.unit == "chunk" else marks.steps or marks.repeats
    anchors = marks.anchors("pace")
    return "chunk" if anchors is not None and anchors is marks.chunks else "step", anchors

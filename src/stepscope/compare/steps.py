"""Which stretches of GPU time are compared: the steps of a rank, one after the other.

By default a step lasts from its first op to the first op of the next one: what a data loader or an optimizer does
between two steps counts, and nothing counts twice. The last step has no next one, and is left out with the drain of
the pipeline. Chunks of a trainer that marks no steps are put together to steps where their labels come again.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.spec import WindowSpec
from stepscope.derive.windows.steps import CHUNK, STEPS, Anchors, anchors_of
from stepscope.derive.windows.window import WHOLE, by_launch
from stepscope.errors import BadInput
from stepscope.model.profile import Profile

I64 = npt.NDArray[np.int64]
Kind = Literal["step", "chunk", "whole"]


@dataclass(frozen=True)
class StepSpec:
    """How the user chose what is compared."""

    anchor: str | None = None
    #: to the next one's first op; else each step's own ops only
    period: bool = True
    whole: bool = False
    warmup: int = 0

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


def steps_of(profile: Profile, data: RankData, spec: StepSpec) -> Steps | None:
    """The rank's steps; None where it has no GPU work in any."""
    anchors = None if spec.whole else _anchors(profile, data, spec.anchor)
    if anchors is None:
        if spec.anchor is not None or not len(data.start):
            return None
        first, last = int(data.start.min()), int(data.end.max())
        return Steps("whole", [WHOLE], np.array([first]), np.array([last]), False)
    cycle = _cycle(anchors)
    kind: Kind = "step"
    if cycle is anchors and re.search(CHUNK, anchors.label[0]):
        kind = "chunk"
    count = len(cycle.label)
    period = spec.period and count > 1
    found = [by_launch(data, cycle, k, period) for k in range(count - period)][spec.warmup :]
    known = [w for w in found if w.gpu_start_ns is not None and w.gpu_end_ns is not None]
    if not known:
        return None
    start, end = (np.array([getattr(w, e) for w in known], np.int64) for e in ("gpu_start_ns", "gpu_end_ns"))
    return Steps(kind, [w.label for w in known], start, end, period)


def _anchors(profile: Profile, data: RankData, pattern: str | None) -> Anchors | None:
    if pattern is None and profile.names.str.contains(CHUNK).any():
        marked = anchors_of(data, STEPS)
        if marked is not None and len(marked.label) > 1:
            return marked
    return anchors_of(data, pattern)


def _cycle(anchors: Anchors) -> Anchors:
    """Where labels come again: the instances of the one that comes most often, each the beginning of a step."""
    label, times = Counter(anchors.label).most_common(1)[0]  # of several, the first to come
    if times == 1:
        return anchors
    mine = [i for i, text in enumerate(anchors.label) if text == label]
    return Anchors([f"{label} #{k}" for k in range(times)], anchors.start[mine], anchors.end[mine])

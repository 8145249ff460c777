"""Every detector by its id. They are imported when first asked for: Python starts faster without them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from stepscope.derive.replay.change import Change
from stepscope.findings.finding import Finding
from stepscope.model.note import Note

if TYPE_CHECKING:
    from stepscope.findings.case import Case
    from stepscope.findings.evidence.sequence import Sequence
    from stepscope.intervals.arrays import F64, Mask

#: The detector of an id is the file of that name in `findings/detectors`.
DETECTORS = (
    "allocator-churn",
    "attention-by-hand",
    "below-roof",
    "casts-and-copies",
    "checkpoint",
    "clock-throttling",
    "compute-imbalance",
    "data-stall",
    "drift",
    "epoch-end",
    "evaluation",
    "expert-imbalance",
    "experts-one-by-one",
    "exposed-communication",
    "exposed-copies",
    "gc-pause",
    "gil-contention",
    "graph-breaks",
    "host-sync",
    "idle-device",
    "in-order-communication",
    "late-node",
    "launch-bound",
    "low-occupancy",
    "memory-layout",
    "module-loading",
    "no-tensor-cores",
    "odd-shapes",
    "pace",
    "pipeline-bubble",
    "profiler-distortion",
    "recomputation",
    "repeated-reduction",
    "serialized-communication",
    "serialized-stages",
    "slow-algorithms",
    "slow-indexing",
    "slow-link",
    "slow-loss",
    "slow-optimizer",
    "spikes",
    "step-kinds",
    "straggler",
    "tiny-kernels",
    "unexplained",
    "unfused-kernels",
    "unused-forward",
    "unused-gradients",
    "warm-up",
)
#: Those that look at the run's steps, of which a log of steps tells enough.
OF_THE_RUN = ("checkpoint", "drift", "epoch-end", "evaluation", "pace", "spikes", "step-kinds", "warm-up")
#: Causes that are not findings, but are taken out of what findings give back: the file in `findings/evidence`.
WITHOUT_FINDING = {"first-use": "first_uses"}


@dataclass(frozen=True)
class Detector:
    """A detector: what it looks for, and how."""

    id: str
    question: str
    doc: str
    detect: Callable[[Case], list[Finding]]
    #: the step without the cause; none where a finding has no single one
    remedy: Callable[[Case], Change] | None = None
    #: what is left once all others have been looked for
    rest: Callable[[Case, list[Finding]], list[Finding]] | None = None
    #: notes that are not findings
    notes: Callable[[Case], list[Note]] = lambda _: []


@cache
def detectors() -> tuple[Detector, ...]:
    """All detectors, by id."""
    return tuple(_detector(_module(id)) for id in DETECTORS)


def _detector(module: ModuleType) -> Detector:
    doc = inspect.cleandoc(module.__doc__ or "")
    parts = {name: getattr(module, name) for name in ("remedy", "notes", "rest") if hasattr(module, name)}
    return Detector(module.ID, doc.split("\n", 1)[0], doc, module.detect, **parts)


def remedy(cause: str) -> Callable[[Case], Change]:
    """What takes a cause out of the step."""
    function: Callable[[Case], Change] = _module(cause).remedy
    return function


def claim(cause: str) -> Callable[[Sequence, Mask], F64]:
    """Which kernels a cause of wasted compute takes, and what would be left of each: `evidence/claims.py`."""
    function: Callable[[Sequence, Mask], F64] = _module(cause).claim
    return function


def _module(cause: str) -> ModuleType:
    if cause in WITHOUT_FINDING:
        return import_module(f"stepscope.findings.evidence.{WITHOUT_FINDING[cause]}")
    return import_module(f"stepscope.findings.detectors.{cause.replace('-', '_')}")

"""Every detector, found by its file in `findings/detectors`."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from stepscope.findings.case import Case
from stepscope.findings.finding import Finding


@dataclass(frozen=True)
class Detector:
    """A detector: what it looks for, and how."""

    id: str
    question: str
    doc: str
    detect: Callable[[Case], list[Finding]]
    #: what is worth a word though it is no finding
    notes: Callable[[Case], list[str]] = lambda _: []


@cache
def detectors() -> tuple[Detector, ...]:
    """All detectors, by id."""
    folder = Path(__file__).parent / "detectors"
    found = []
    for module in sorted(m.name for m in pkgutil.iter_modules([str(folder)]) if not m.name.startswith("_")):
        loaded = import_module(f"stepscope.findings.detectors.{module}")
        doc = inspect.cleandoc(loaded.__doc__ or "")
        words = {"notes": loaded.notes} if hasattr(loaded, "notes") else {}
        found.append(Detector(loaded.ID, doc.split("\n", 1)[0], doc, loaded.detect, **words))
    return tuple(sorted(found, key=lambda d: d.id))

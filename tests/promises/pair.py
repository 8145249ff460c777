"""Two jobs that differ in one thing, what `diagnose` promised for it, and what taking it away gave."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stepscope import api

#: Below this share of the step a fault need not be named, nor its promise be exact.
MATERIAL = 0.03
#: A promise that is further off than this share of the gain is a miss.
MISSED = 0.30
#: Findings that name a fault which can be planted: false of a job that has none.
PLANTABLE = frozenset({
    "allocator-churn", "data-stall", "expert-imbalance", "host-sync", "late-node", "launch-bound",
    "serialized-communication", "slow-link", "straggler", "tiny-kernels",
})  # fmt: skip


@dataclass(frozen=True)
class Said:
    """One finding of `diagnose`. The interval is None where `diagnose` states none."""

    id: str
    ranks: str
    ns: int
    cause: str
    low_ns: int | None = None
    high_ns: int | None = None
    title: str = ""

    def less(self, ns: int) -> Said:
        """What is promised beyond so much; the interval keeps its width."""
        low, high = (None if bound is None else bound - ns for bound in (self.low_ns, self.high_ns))
        return replace(self, ns=self.ns - ns, low_ns=low, high_ns=high)


@dataclass(frozen=True)
class Pair:
    """What was planted and what it costs, beside what was said. `ids`: the findings that would name it."""

    job: str
    tool: str
    fault: str
    ids: tuple[str, ...]
    truth_ns: float
    #: how far the truth itself may be off (one standard error or half a range); None where it was measured once
    truth_pm_ns: float | None
    step_ns: int
    said: tuple[Said, ...]
    #: the ranks that the finding must name; None where any will do
    ranks: str | None = None
    #: the largest finding of the twin: what is wrong without the fault
    beside_ns: int = 0
    group: str = ""
    note: str = ""
    #: the difference of the captures, where there are both: what the fault costs under the profiler
    profiled_ns: float | None = None
    #: the step with the fault without a profiler; `step_ns` is what `diagnose` looked at
    real_step_ns: float | None = None
    #: whether the interval that all other jobs give holds the truth; None where that was not asked
    inside_others: bool | None = None

    @property
    def first(self) -> Said | None:
        """The first fault that is named. That the profiler slows the step is said before, and is none of the job's."""
        return next((s for s in self.said if s.id != "profiler-distortion"), None)

    @property
    def promise(self) -> Said | None:
        """The finding that names the fault, wherever it stands."""
        return next((s for s in self.said if s.id in self.ids), None)

    @property
    def promised_ns(self) -> int:
        return self.promise.ns if self.promise else 0

    @property
    def error(self) -> float:
        """Of the gain: 0.1 is promised 10 % too much, -1 nothing promised."""
        return (self.promised_ns - self.truth_ns) / max(self.truth_ns, 1.0)

    @property
    def material(self) -> bool:
        return self.truth_ns >= MATERIAL * (self.real_step_ns or self.step_ns)

    @property
    def must_be_first(self) -> bool:
        """It is worth naming, and nothing larger is wrong with the job."""
        return self.material and self.truth_ns > self.beside_ns

    @property
    def named_first(self) -> bool:
        return self.first is not None and self.first.id in self.ids and self.ranks in (None, self.first.ranks)

    @property
    def missed(self) -> bool:
        """Far off, or another finding came first. A promise for what costs hardly anything counts, too."""
        if self.must_be_first and not self.named_first:
            return True
        return max(self.truth_ns, self.promised_ns) >= MATERIAL * self.step_ns and abs(self.error) > MISSED

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds the truth; None where no interval is stated."""
        p = self.promise
        if self.inside_others is not None:
            return self.inside_others
        if p is None or p.low_ns is None or p.high_ns is None:
            return None
        return p.low_ns <= self.truth_ns <= p.high_ns

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"error": self.error, "named_first": self.named_first, "material": self.material}


@dataclass(frozen=True)
class Healthy:
    """A job without a fault. `delivers`: findings that are known to be right about it, and how that is known."""

    job: str
    tool: str
    step_ns: int
    said: tuple[Said, ...]
    delivers: dict[str, str] = field(default_factory=dict)

    @property
    def false(self) -> list[Said]:
        """Findings whose cause is said to be certain, and that fixing could not deliver."""
        return [s for s in self.said if s.cause == "certain" and s.id in PLANTABLE and s.id not in self.delivers]


@dataclass(frozen=True)
class Told:
    """What `diagnose` says: of a step, or of the whole capture where nothing marks steps."""

    step_ns: int
    said: tuple[Said, ...]
    of_capture: bool
    #: codes of its notes
    notes: frozenset[str] = frozenset()


def asked(paths: Path | Iterable[Path]) -> Told:
    """What `diagnose` says of a profile."""
    files = [paths] if isinstance(paths, Path) else list(paths)
    result = api.analyse(api.open(*files, cache=False), "diagnose")
    said = tuple(
        Said(
            row["id"],
            row["ranks"],
            int(row["recoverable_ns"]),
            row["cause"],
            row.get("recoverable_low_ns"),
            row.get("recoverable_high_ns"),
            row["title"],
        )
        for row in result.rows.to_dicts()
    )
    notes = frozenset(note.code for note in result.notes)
    return Told(int(result.summary["step_ns"]), said, all(w["kind"] == "capture" for w in result.window), notes)


@dataclass(frozen=True)
class Figures:
    """How well promises were kept, over some pairs."""

    n: int
    median: float
    p90: float
    worst: float
    stated: int
    covered: int
    must: int
    first: int

    @property
    def coverage(self) -> float | None:
        return self.covered / self.stated if self.stated else None


def figures(pairs: Iterable[Pair]) -> Figures | None:
    """Of those that are worth naming; a fault that was not found has an error of 100 %."""
    chosen = [p for p in pairs if p.material]
    if not chosen:
        return None
    errors = sorted(abs(p.error) for p in chosen)
    stated = [p for p in chosen if p.inside is not None]
    must = [p for p in chosen if p.must_be_first]
    return Figures(
        len(chosen),
        statistics.median(errors),
        errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        errors[-1],
        len(stated),
        sum(p.inside is True for p in stated),
        len(must),
        sum(p.named_first for p in must),
    )

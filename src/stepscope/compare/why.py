"""Why the step changed: the rank that the others wait for, what the GPU idles for, the finding that came or went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from stepscope.compare.columns import Line
from stepscope.compare.verdict import Step
from stepscope.model.threshold import Threshold
from stepscope.model.units import about, signed

_EXPLAINS = Threshold(
    25.0,
    "% of the step's change",
    "a finding says why where its own change is at least so much of it",
    ("tests/compare/test_why.py",),
)
_OWN = Threshold(
    50.0,
    "% of the step's change",
    "the others wait for a rank whose own time changed by at least so much",
    ("tests/compare/test_why.py",),
)
#: Findings that are what a cause leads to: named where no cause is.
_EFFECTS = ("exposed-communication", "in-order-communication", "pipeline-bubble", "unexplained")
OwnPart = Literal["compute_diff_ns", "copy_diff_ns", "idle_diff_ns"]
#: What ranks do by themselves, as rows by rank have it: exposed communication is also waiting for others.
_OWN_PARTS: dict[OwnPart, str] = {
    "compute_diff_ns": "compute",
    "copy_diff_ns": "exposed copies",
    "idle_diff_ns": "idle time",
}


#: What parts of a step are called in a sentence.
_PARTS = {"comm_exposed": "exposed communication", "copy_exposed": "exposed copies", "idle": "idle time"}


class Finding(NamedTuple):
    """What `diagnose` says of a side: one finding."""

    id: str
    title: str
    ranks: str
    ns: int


class Evidence(NamedTuple):
    """What is known of a side beyond its parts: findings, and idle time of its usual step by rank and cause."""

    findings: list[Finding]
    idle: dict[tuple[int, str], int]


#: Asked only where the step changed: a diagnosis takes longer than the comparison.
Gather = Callable[[], tuple[Evidence, Evidence]]


def because(step: Step, parts: list[Line], ranks: list[Line], gather: Gather) -> str:
    """What changed most, on whom it was, and why."""
    base, new = gather()
    sign = 1 if step.delta_ns > 0 else -1
    diff: Literal["mean_diff_ns", "diff_ns"] = "mean_diff_ns" if step.uneven else "diff_ns"
    most = max(parts, key=lambda r: sign * r[diff])
    culprit = _culprit(step, ranks, sign) if most["key"] == "comm_exposed" else None
    if culprit is None:
        idle = _cause(base, new, sign) if most["key"] == "idle" else ""
        changed = _mostly(step, parts, f": {idle}" if idle else "")
    else:
        rank, column, ns = culprit
        idle = _cause(base, new, sign, rank) if column == "idle_diff_ns" else ""
        cause = f" ({idle})" if idle else ""
        waiting = "most of it waiting" if sign > 0 else "most of it less waiting"
        changed = f"{waiting} for rank {rank}, whose {_OWN_PARTS[column]}{cause} changed by {signed(ns)}"
    return f"{changed}{_finding(step, base.findings, new.findings, sign)}"


def _mostly(step: Step, parts: list[Line], cause: str = "") -> str:
    """The part that moved most in the direction of the step, and what went against it."""
    sign = 1 if step.delta_ns > 0 else -1
    diff: Literal["mean_diff_ns", "diff_ns"] = "mean_diff_ns" if step.uneven else "diff_ns"
    most = max(parts, key=lambda r: sign * r[diff])
    moved = f"{_called(most)}{cause} ({signed(most[diff])}"
    against = min(parts, key=lambda r: sign * r[diff])
    if -sign * against[diff] < 0.1 * abs(step.delta_ns):
        return f"most of it {moved} of {signed(step.delta_ns)})"
    return f"by {moved}, against {_called(against)} {signed(against[diff])})"


def _called(part: Line) -> str:
    """A part in words."""
    return _PARTS.get(str(part["key"]), str(part["key"]))


def _culprit(step: Step, ranks: list[Line], sign: int) -> tuple[int | str, OwnPart, int] | None:
    """The rank whose own time changed with the step while the others waited for it: rank, what of it, by how much."""
    own = {r["key"]: sign * sum(r[c] or 0 for c in _OWN_PARTS) for r in ranks}
    if len(own) < 2:
        return None
    rank = max(own, key=lambda r: (own[r], -int(r)))
    others = sorted(ns for r, ns in own.items() if r != rank)
    # The others' own time is as it was: else all became slower, and nobody waits for this one.
    if own[rank] < _OWN.share * abs(step.delta_ns) or others[len(others) // 2] > own[rank] / 2:
        return None
    row = next(r for r in ranks if r["key"] == rank)
    moved = {column: row[column] or 0 for column in _OWN_PARTS}
    most = max(moved, key=lambda column: sign * moved[column])
    return rank, most, moved[most]


def _cause(base: Evidence, new: Evidence, sign: int, rank: int | str | None = None) -> str:
    """What idle time changed by most, in the words of `idle --by cause`; nothing where that was not recorded."""
    sums: dict[str, int] = {}
    for side, weight in ((base, -sign), (new, sign)):
        for (of, cause), ns in side.idle.items():
            if rank in (None, of):
                sums[cause] = sums.get(cause, 0) + weight * ns
    most = max(sums, key=lambda c: sums[c], default="")
    return most if most and sums[most] > 0 else ""


def _finding(step: Step, base: list[Finding], new: list[Finding], sign: int) -> str:
    """The finding that came or went with the step's change: a cause before what it leads to."""
    before, after = _gains(base), _gains(new)
    change = {i: sign * (after.get(i, 0) - before.get(i, 0)) for i in {**before, **after}}
    explaining = [i for i, ns in change.items() if ns >= _EXPLAINS.share * abs(step.delta_ns)]
    if not explaining:
        return ""
    chosen = min(explaining, key=lambda i: (i in _EFFECTS, -change[i], i))
    having, lacking = (new, before) if sign > 0 else (base, after)
    finding = max((f for f in having if f.id == chosen), key=lambda f: f.ns)
    new_here = 4 * lacking.get(chosen, 0) < _gains(having)[chosen]
    word = ("is new" if sign > 0 else "is gone") if new_here else ("grew" if sign > 0 else "shrank")
    where = f" on rank{'s' * (not finding.ranks.isdigit())} {finding.ranks}" if "rank" not in finding.title else ""
    return f"; {chosen} {word}: {finding.title}{where} ({about(change[chosen], 4)} a step)"


def _gains(findings: Iterable[Finding]) -> dict[str, int]:
    """What each kind of finding could save."""
    sums: dict[str, int] = {}
    for finding in findings:
        sums[finding.id] = sums.get(finding.id, 0) + finding.ns
    return sums


def nothing_known() -> tuple[Evidence, Evidence]:
    """Where only parts were kept, as in a baseline."""
    return Evidence([], {}), Evidence([], {})

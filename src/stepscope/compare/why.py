"""Why the step changed: the rank that the others wait for, what the GPU idles for, the finding that came or went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

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
#: What ranks do by themselves, as rows by rank have it: exposed communication is also waiting for others.
_OWN_PARTS = {"compute_diff_ns": "compute", "copy_diff_ns": "exposed copies", "idle_diff_ns": "idle time"}


class Found(NamedTuple):
    """What `diagnose` says of a side: one finding."""

    id: str
    title: str
    ranks: str
    ns: int


class Evidence(NamedTuple):
    """What is known of a side beyond its parts: findings, and idle time of its usual step by rank and cause."""

    findings: list[Found]
    idle: dict[tuple[int, str], int]


#: Asked only where the step changed: a diagnosis takes longer than the comparison.
Gather = Callable[[], tuple[Evidence, Evidence]]


def because(step: Step, parts: list[dict[str, Any]], ranks: list[dict[str, Any]], gather: Gather) -> str:
    """What changed most, on whom it was, and why."""
    base, new = gather()
    sign = 1 if step.delta_ns > 0 else -1
    diff = "mean_diff_ns" if step.uneven else "diff_ns"
    most = max(parts, key=lambda r: sign * r[diff])
    culprit = _culprit(step, ranks, sign) if most["part"] == "comm_exposed" else None
    if culprit is None:
        cause = f": {told}" if most["part"] == "idle" and (told := _cause(base, new, sign)) else ""
        said = _mostly(step, parts, cause)
    else:
        rank, column, ns = culprit
        cause = f" ({told})" if column == "idle_diff_ns" and (told := _cause(base, new, sign, rank)) else ""
        waiting = "most of it waiting" if sign > 0 else "most of it less waiting"
        said = f"{waiting} for rank {rank}, whose {_OWN_PARTS[column]}{cause} changed by {signed(ns)}"
    return f"{said}{_finding(step, base.findings, new.findings, sign)}"


def _mostly(step: Step, parts: list[dict[str, Any]], cause: str = "") -> str:
    """The part that moved most in the direction of the step, and what went against it."""
    sign = 1 if step.delta_ns > 0 else -1
    diff = "mean_diff_ns" if step.uneven else "diff_ns"
    most = max(parts, key=lambda r: sign * r[diff])
    moved = f"{most['part']}{cause} ({signed(most[diff])}"
    against = min(parts, key=lambda r: sign * r[diff])
    if -sign * against[diff] < 0.1 * abs(step.delta_ns):
        return f"most of it {moved} of {signed(step.delta_ns)})"
    return f"by {moved}, against {against['part']} {signed(against[diff])})"


def _culprit(step: Step, ranks: list[dict[str, Any]], sign: int) -> tuple[int, str, int] | None:
    """The rank whose own time changed with the step while the others waited for it: rank, what of it, by how much."""
    own = {r["rank"]: sign * sum(r[c] for c in _OWN_PARTS) for r in ranks}
    if len(own) < 2:
        return None
    rank = max(own, key=lambda r: (own[r], -r))
    others = sorted(ns for r, ns in own.items() if r != rank)
    # The others' own time is as it was: else all became slower, and nobody waits for this one.
    if own[rank] < _OWN.share * abs(step.delta_ns) or others[len(others) // 2] > own[rank] / 2:
        return None
    row = next(r for r in ranks if r["rank"] == rank)
    column = max(_OWN_PARTS, key=lambda c: sign * row[c])
    return rank, column, row[column]


def _cause(base: Evidence, new: Evidence, sign: int, rank: int | None = None) -> str:
    """What idle time changed by most, in the words of `idle --by cause`; nothing where that was not recorded."""
    sums: dict[str, int] = {}
    for side, weight in ((base, -sign), (new, sign)):
        for (of, cause), ns in side.idle.items():
            if rank in (None, of):
                sums[cause] = sums.get(cause, 0) + weight * ns
    most = max(sums, key=lambda c: sums[c], default="")
    return most if most and sums[most] > 0 else ""


def _finding(step: Step, base: list[Found], new: list[Found], sign: int) -> str:
    """The finding that came or went with the step's change: a cause before what it leads to."""
    before, after = _gains(base), _gains(new)
    change = {i: sign * (after.get(i, 0) - before.get(i, 0)) for i in {**before, **after}}
    told = [i for i, ns in change.items() if ns >= _EXPLAINS.share * abs(step.delta_ns)]
    if not told:
        return ""
    chosen = min(told, key=lambda i: (i in _EFFECTS, -change[i], i))
    having, lacking = (new, before) if sign > 0 else (base, after)
    finding = max((f for f in having if f.id == chosen), key=lambda f: f.ns)
    new_here = 4 * lacking.get(chosen, 0) < _gains(having)[chosen]
    word = ("came" if sign > 0 else "is gone") if new_here else ("grew" if sign > 0 else "shrank")
    where = f" on rank{'s' * (not finding.ranks.isdigit())} {finding.ranks}" if "rank" not in finding.title else ""
    return f"; {chosen} {word}: {finding.title}{where} ({about(change[chosen], 4)} a step)"


def _gains(findings: Iterable[Found]) -> dict[str, int]:
    """What each kind of finding could give back."""
    sums: dict[str, int] = {}
    for finding in findings:
        sums[finding.id] = sums.get(finding.id, 0) + finding.ns
    return sums


def nothing_known() -> tuple[Evidence, Evidence]:
    """Where only parts were kept, as in a baseline."""
    return Evidence([], {}), Evidence([], {})

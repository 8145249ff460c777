"""Findings over several kinds of steps: each kind's step is looked at, and what a finding gives back is their mean.

Kinds count by how often they come. A finding says in which of them it occurs, and shows the one that gives most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stepscope.findings.finding import Finding
from stepscope.findings.run.episodes import OtherKind
from stepscope.model.units import about

#: Id of the finding that steps are of several kinds.
_KINDS = "step-kinds"

#: Kinds, the number of the step that stands for each, and its findings.
Others = list[tuple[OtherKind, int, list[Finding]]]


def over_kinds(usual: list[Finding], others: Others) -> list[Finding]:
    """The findings of the usual step and of other kinds as findings of the mean step."""
    of_run = [f for f in usual if f.of_run or f.warns]
    shares = [1.0 - sum(kind.share for kind, *_ in others), *(kind.share for kind, *_ in others)]
    of_kinds = [[f for f in usual if f not in of_run], *(_shown(*other) for other in others)]
    keys = dict.fromkeys((f.id, f.ranks) for found in of_kinds for f in found)
    merged, beyond = [], 0.0
    for key in keys:
        same = [[f for f in found if (f.id, f.ranks) == key] for found in of_kinds]
        gains = [sum(f.recoverable_ns for f in found) for found in same]
        if not any(f.bound for found in same for f in found):  # one upper bound takes nothing from another
            beyond += sum(share * max(0, gain - gains[0]) for share, gain in zip(shares[1:], gains[1:], strict=True))
        merged.append(_merged(same, shares))
    return [*merged, *(replace(f, recoverable_ns=_rest(f, beyond)) if f.id == _KINDS else f for f in of_run)]


def _rest(f: Finding, beyond: float) -> int:
    """What remains of another kind's excess once findings within it have theirs."""
    return max(0, round(f.recoverable_ns - beyond))


def _shown(kind: OtherKind, index: int, findings: Iterable[Finding]) -> list[Finding]:
    """Findings of another kind of steps: which they are, and the step that shows them."""
    k = kind.kind
    often = f"every {k.every}th" if k.every else f"{len(k.steps)} of {kind.steps}"
    where = f"in the {k.name} steps ({often}, of {about(k.usual_ns)}): "
    return [replace(f, evidence=f"{where}{f.evidence}", index=index) for f in findings if not f.warns]


def _merged(same: list[list[Finding]], shares: list[float]) -> Finding:
    """One finding of a kind: the mean over all steps, shown where it gives most."""
    weighed = [(share * f.expected_ns, share, f) for share, found in zip(shares, same, strict=True) for f in found]
    shown = max(weighed, key=lambda item: item[0])[2]

    def mean(figure: str) -> int:
        return round(sum(share * (getattr(f, figure) or 0) for _, share, f in weighed))

    return replace(shown, recoverable_ns=mean("recoverable_ns"), low_ns=mean("low_ns"), high_ns=mean("high_ns"))

"""What is asked of both sides of a comparison where the step changed: the findings, and idle time by cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepscope.errors import CannotAnswer
from stepscope.model.profile import Profile

if TYPE_CHECKING:
    from stepscope.compare.steps import StepSpec
    from stepscope.compare.why import Evidence


def evidence(profiles: Sequence[Profile], spec: StepSpec, ranks: list[int] | None) -> Evidence:
    """Of a side, by its first run: runs of one side are the same but for chance."""
    from stepscope.analyses.idle import idle
    from stepscope.compare.why import Evidence, Finding
    from stepscope.derive.windows.spec import WindowSpec
    from stepscope.findings.diagnose import diagnose

    profile = profiles[0] if ranks is None else profiles[0].view(ranks)
    window = WindowSpec(anchor=spec.anchor, unit=spec.unit, whole=spec.whole)
    findings: list[Finding] = []
    causes: dict[tuple[int, str], int] = {}
    try:
        table = diagnose(profile, window).rows
        findings = [Finding(*row) for row in table.select("id", "title", "ranks", "recoverable_ns").iter_rows()]
        table = idle(profile, window, by="cause").rows
        causes = {(rank, cause): ns for rank, cause, ns in table.select("rank", "cause", "total_ns").iter_rows()}
    except CannotAnswer:
        pass  # without calls or a GPU's records there is less to say
    return Evidence(findings, causes)

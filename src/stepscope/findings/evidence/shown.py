"""Figures of the step as commands print them: evidence quotes these, so that the command that it cites shows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import polars as pl

from stepscope.analyses.breakdown import breakdown
from stepscope.analyses.collectives import collectives
from stepscope.analyses.kernels import kernels
from stepscope.analyses.overlap import overlap
from stepscope.derive.host.idle_causes import CAUSES
from stepscope.derive.kernel.matching import joined
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import Host
from stepscope.findings.evidence.peers import stages
from stepscope.findings.evidence.places import PLACES
from stepscope.findings.finding import Place
from stepscope.model.result import Result
from stepscope.model.units import about

#: Causes of `idle` with which the host keeps the GPU waiting before a launch.
LATE = ("host", "api", "gil")


def part(case: Case, rank: int, column: str) -> int:
    """A part of the rank's step, from `breakdown`: `comm_exposed_ns`."""
    return int(_of_rank(case.ask(breakdown), rank)[column][0])


def idle_by(host: Host, *causes: str, at_least: int = 0) -> tuple[str, tuple[int, ...]]:
    """All idle time, from `idle --by cause`: `9 ms of the step (sync 6 ms, host 2 ms, other causes 1 ms)`; and parts.

    By all causes where these few do not make up what a finding speaks of.
    """
    if host.idle_ns(*causes) < at_least:
        causes = tuple(CAUSES)
    parts = {cause: ns for cause in causes if (ns := host.idle_ns(cause))}
    total = host.idle_ns(*CAUSES)
    shares = parts | ({"other causes": rest} if (rest := total - sum(parts.values())) else {})
    listed = ", ".join(f"{cause} {about(ns)}" for cause, ns in shares.items())
    return f"{about(total)} of the step{f' ({listed})' if parts else ''}", tuple(parts.values()) or (0,)


def lost_by(case: Case, host: Host, *causes: str, claim: int) -> tuple[str, tuple[int, ...], tuple[str, str]]:
    """The same, with the command that shows it. Where it does not make up what a finding claims, ranks also wait for
    each other in communication: then that too, since no claim is larger than its evidence."""
    text, figures = idle_by(host, *causes, at_least=claim)
    if sum(figures) >= claim or not (waited := waiting(case))[1]:
        return text, figures, ("idle", "--by cause")
    return f"{text}, and {waited[0]}", (*figures, waited[1]), ("launches", "--by rank")


def waiting(case: Case) -> tuple[str, int]:
    """Most exposed communication of a rank, in words; it includes waiting for ranks that come late."""
    exposed = {r: part(case, r, "comm_exposed_ns") for r in case.ranks}
    worst = max(exposed, key=lambda r: (exposed[r], -r))
    return f"communication is exposed for {about(exposed[worst])} on rank {worst}", exposed[worst]


def kernel(case: Case, rank: int, name: str) -> dict[str, Any]:
    """The row of `kernels` that a short name has on a rank."""
    # What was measured apart is matched over all ranks; all else that a row says is of its rank.
    answer = case.ask(kernels) if joined(case.profile) else case.ask_of(rank, kernels)
    table = _of_rank(answer, rank).filter(pl.col("name") == name)
    return table.sort("total_ns", descending=True).row(0, named=True)


def exposed_in(case: Case, by: str, rank: int, keys: Collection[str]) -> dict[str, Any]:
    """Of the rows of `overlap --by …` with these keys on a rank, the one with most exposed."""
    table = _of_rank(case.ask(overlap, by=by, window=_asked_for(case)), rank).filter(pl.col(by).is_in(list(keys)))
    return table.sort("exposed_wall_ns", by, descending=[True, False]).row(0, named=True)


def communication(case: Case, rank: int) -> dict[str, Any]:
    """All communication of a rank's step, as the summary of `overlap` has it."""
    totals = case.ask_of(rank, overlap, window=_asked_for(case)).summary["total"]
    return next(t for t in totals if t["rank"] == rank)


def matched(case: Case, by: str) -> Result:
    """What `collectives` says of the step."""
    return case.ask(collectives, by=by, align=case.align, window=_asked_for(case))


def peer_of(case: Case, rank: int, but: Collection[int]) -> int | None:
    """Of ranks that do the same work as this one, the one of median compute; without such, of all others."""
    others = [r for r in case.ranks if r != rank and r not in but]
    same = case.once(stages)
    alike = [r for r in others if same.get(r) == same.get(rank)] or others
    alike.sort(key=lambda r: (part(case, r, "compute_ns"), r))
    return alike[(len(alike) - 1) // 2] if alike else None


def at_the_moment(case: Case, place: Place, rank: int) -> Place:
    """The same stretch of time on another rank, by its own clock."""
    window = case.windows[rank]
    begun = window.gpu_start_ns or 0
    later = case.path.clock.moment(rank, begun) - begun
    start, end = (case.path.clock.moment(place.rank, t) - later for t in (place.start_ns, place.end_ns))
    return Place(rank, start, end)


def beside(case: Case, places: tuple[Place, ...], rank: int | None) -> tuple[Place, ...]:
    """Places, with a peer beside the first of them: what the same time looks like there."""
    if not places or rank is None:
        return places
    return (places[0], at_the_moment(case, places[0], rank), *places[1:])[:PLACES]


def _of_rank(answer: Result, rank: int) -> pl.DataFrame:
    return answer.rows.filter(pl.col("rank") == rank)


def _asked_for(case: Case) -> WindowSpec:
    """The window of the case, for commands that would look at chunks or at the whole capture."""
    spec = case.spec
    named = spec.anchor is not None or spec.whole or spec.start is not None or spec.unit is not None
    if named:
        return spec
    return replace(spec, whole=True, label=None) if case.kind == "capture" else replace(spec, unit="step")

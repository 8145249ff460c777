"""The operator statement: one sentence with figure, window and condition (semantics §10)."""

from __future__ import annotations

from stepscope.derive.rank.data import COMPUTE
from stepscope.findings.case import Case
from stepscope.findings.finding import Finding
from stepscope.model.labels import setups
from stepscope.model.ranks import some_ranks
from stepscope.model.units import about


def statement(case: Case, f: Finding) -> str:
    """What the first finding says, of which step, under which conditions."""
    figure = f"{about(f.recoverable_ns)} of the {about(case.step_ns)} step ({case.share(f.recoverable_ns):.0f} %)"
    return f"{f.title}: {figure} could come back, on {_ranks(case, f)}{_conditions(case)}."


def clean(case: Case, least: float) -> str:
    """A clean bill: nothing from this share of the step on, in per cent; none where no compute was recorded."""
    if not any(case.each_rank(lambda _, d, w: bool((d.role[w.ops] == COMPUTE).any())).values()):
        who = some_ranks(case.ranks)
        return f"No compute kernel was recorded on {who}: nothing says where the {case.kind} goes."
    what = f"Nothing above {least:g} % of the {about(case.step_ns)} step"
    return f"{what} stands out on {some_ranks(case.ranks)}{_conditions(case)}."


def _ranks(case: Case, f: Finding) -> str:
    ranks, named = case.ranks, f.ranks or case.ranks
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(named) > 3:
        return f"{len(named)} of {len(ranks)} ranks"
    return f"{some_ranks(named)} of {len(ranks)}"


def _conditions(case: Case) -> str:
    """Label of the window and the mesh: `, step 1, pp=2 ep=4, seq 4096`."""
    labels = {w.label for w in case.windows.values()}
    parts = [next(iter(labels))] if len(labels) == 1 else []
    job = list(setups(case.profile.ranks).values())
    if job:
        axes = [f"{a}={n}" for a, (_, n) in job[0].axes.items() if n > 1]
        parts += [" ".join(axes)] * bool(axes)
        parts += [f"{k} {job[0].extra[k]}" for k in ("seq",) if k in job[0].extra]
    return "".join(f", {p}" for p in parts)

"""The operator statement: one sentence with figure, window and condition (semantics §10)."""

from __future__ import annotations

import re

from stepscope.derive.accounting.partition import partition
from stepscope.derive.rank.data import RankData
from stepscope.derive.windows.window import WHOLE, Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.last import last_rank
from stepscope.findings.evidence.once import set_up
from stepscope.findings.finding import Finding
from stepscope.model.labels import setups
from stepscope.model.profile import Profile
from stepscope.model.range_names import short_range
from stepscope.model.ranks import some_ranks
from stepscope.model.statement import percent
from stepscope.model.units import about


def statement(case: Case, f: Finding) -> str:
    """What the first finding says, of which step, under which conditions."""
    gain, of = about(f.recoverable_ns), _whole(case)
    figure = f"{'up to ' * f.bound}{gain} of {of} ({case.share(f.recoverable_ns):.0f} %)"
    text = f"{of_window(case, f.title)}: {figure} could be saved, on {_ranks(case, f)}{_conditions(case, f.of_run)}."
    if f.id == "unexplained":
        text = f"No known cause stands out; {text}"
    rest = set_up(case)
    return (
        f"{text} {percent(rest, case.step_ns)} of the capture is start-up, which happens once."
        if 2 * rest > case.step_ns
        else text
    )


def of_window(case: Case, text: str) -> str:
    """A text on the step as one on the window: of a capture without steps nothing is per step."""
    if case.kind != "capture":
        return text
    return re.sub(
        r"\b(of|in) the step\b",
        r"\1 the capture",
        text.replace(" per rank and step", " per rank").replace(" per step", " in the capture"),
    )


def _whole(case: Case) -> str:
    """`the 64.3 ms step`."""
    return f"the {about(case.mean_ns)} {whole_of(case)}"


def whole_of(case: Case) -> str:
    """What shares are of: `step`; where steps differ, `mean step`; of a capture that starts up, what follows."""
    if case.mean_ns == case.step_ns:
        return unit(case)
    return "capture after start-up" if case.kind == "capture" else "mean step"


def unit(case: Case) -> str:
    """What the window is called: `step`, `capture`, `chunk`; `window` where the user chose something else."""
    return case.kind if case.kind in ("step", "capture", "chunk") else "window"


def clean(case: Case, least: float) -> str:
    """A clean bill: nothing from this share of the step on, in per cent; none where no compute was recorded."""
    if case.on_host:
        what = f"Nothing above {least:g} % of the {about(case.step_ns)} step stands out in its pace"
        return f"{what} on {some_ranks(case.ranks)}: steps are alike. A profile would show what they are made of."
    if not case.windows:
        return "No GPU work lies in the window: nothing says where its time goes. Choose another window, or --whole."
    if not any(case.computes.values()):
        who = some_ranks(case.ranks)
        return f"No compute kernel was recorded on {who}: nothing says where the {unit(case)} goes.{_last(case)}"
    parts = _not_compute(case)
    lost = sum(parts.values())
    what = f"above {least:g} % of the {about(case.step_ns)} {unit(case)}"
    where = f"on {some_ranks(case.ranks)}{_conditions(case)}"
    if lost < least:
        return f"Nothing {what} stands out {where}: {percent(100.0 - lost, 100.0)} of it is compute."
    if 2 * (rest := set_up(case)) > case.step_ns:
        of = f"{percent(rest, case.step_ns)} of the {about(case.step_ns)} capture"
        rest_of_it = f"Nothing else from {least:g} % on stands out {where}"
        return f"{of} is start-up, which happens once: no step loses it. {rest_of_it}."
    listed = ", ".join(f"{name} {share:.0f} %" for name, share in parts.items() if share >= 1) or "in small parts"
    return (
        f"No single cause {what} stands out {where}; {lost:.0f} % of it is not compute ({listed}): --least 0 lists all."
    )


def _last(case: Case) -> str:
    """Who comes last in nearly all communication: that can be told of communication alone."""
    last = last_rank(case)
    return f" Rank {last.rank} comes last in {last.times} of {last.total} communications." if last is not None else ""


def _not_compute(case: Case) -> dict[str, float]:
    """Shares of the window, over all ranks, in which nothing computes; in per cent."""

    def parts(_: Profile, data: RankData, window: Window) -> tuple[int, int, int, int]:
        accounts = partition(data, window.gpu_start_ns or 0, window.gpu_end_ns or 0)
        spans = (accounts.comm_exposed, accounts.copy_exposed, accounts.idle)
        return accounts.window_ns, *(s.length() for s in spans)  # type: ignore[return-value]

    total, *lost = (sum(column) for column in zip(*case.each_rank(parts).values(), strict=True))
    names = ("exposed communication", "exposed copies", "idle")
    return {name: 100.0 * ns / max(total, 1) for name, ns in zip(names, lost, strict=True)}


def _ranks(case: Case, f: Finding) -> str:
    ranks, named = case.ranks, f.ranks or case.ranks
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(named) == len(ranks):
        return f"all {len(ranks)} ranks" if len(ranks) > 2 else "both ranks"
    if len(named) > 3:
        return f"{len(named)} of {len(ranks)} ranks"
    return f"{some_ranks(named)} of {len(ranks)}"


def _conditions(case: Case, of_run: bool = False) -> str:
    """Label of the window and the mesh: `, step 1, pp=2 ep=4, seq 4096`. What is of the run is of no one step."""
    labels = set() if of_run else {w.label for w in case.windows.values()} - {WHOLE}  # "capture" was said
    parts = [short_range(next(iter(labels)))] if len(labels) == 1 else []
    job = list(setups(case.profile.ranks).values())
    if job:
        axes = [f"{a}={n}" for a, (_, n) in job[0].axes.items() if n > 1]
        parts += [" ".join(axes)] * bool(axes)
        parts += [f"{k} {job[0].extra[k]}" for k in ("seq",) if k in job[0].extra]
    return "".join(f", {p}" for p in parts)

"""Transfers that nothing runs beside.

Communication is taken together by what it serves (experts, pipeline, data, tensor or context parallelism), else by the
stage that launched it or by its operation. What it could save is the step replayed with
those transfers taking no time: ranks still wait for whoever is late, so that a straggler's victims are not blamed on
the network. It is what is left once other causes are gone: slow links, stragglers, and communication that was only
issued badly have findings of their own. A collective on the compute stream is in order with compute, and not counted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.derive.replay.change import Change
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.evidence.first_uses import first_use_notes
from stepscope.findings.evidence.hosts import guilty
from stepscope.findings.evidence.issued import at_once
from stepscope.findings.evidence.meetings import sides
from stepscope.findings.evidence.parts import (
    Part,
    exposed_transfers,
    most_exposed,
    parts,
    said,
    spans_of,
    together,
    told_by,
)
from stepscope.findings.evidence.places import places_of
from stepscope.findings.evidence.shared_gpu import hideable
from stepscope.findings.evidence.shown import exposed_in
from stepscope.findings.finding import Cause, Finding
from stepscope.findings.texts import advice, title
from stepscope.model.kernel_names import shorten
from stepscope.model.note import Note
from stepscope.model.range_names import short_range
from stepscope.model.ranks import ranks_text
from stepscope.model.statement import several
from stepscope.model.units import about

ID = "exposed-communication"

#: What communication is for, where advice differs by that.
_ADVISED = ("ep_a2a", "pp_p2p", "dp", "dp_grads", "dp_params")


def detect(case: Case) -> list[Finding]:
    by_rank, stages = together(case, case.once(at_once))
    if any(case.once(parts).values()) and not any(case.computes.values()):
        raise CannotAnswer(
            "the trace has no compute kernel, so nothing shows whether communication is hidden",
            "capture all kernels, not only communication",
        )
    by_rank = {r: of for r, of in by_rank.items() if case.computes[r]}
    findings = []
    for key in sorted({kind for kinds in by_rank.values() for kind in kinds}):
        of_kind = {r: of[key] for r, of in by_rank.items() if key in of}
        if case.material(max(p.wall_ns for p in of_kind.values())):
            findings.append(_finding(case, key, of_kind, stages.get(key, [])))
    return findings


def _finding(case: Case, key: str, by_rank: dict[int, Part], stages: list[str]) -> Finding:
    wall = max(p.wall_ns for p in by_rank.values())
    comm = sum(p.comm_ns for p in by_rank.values())
    exposed = sum(int(p.exposed.sum()) for p in by_rank.values())
    share = 100.0 * exposed / comm if comm else 0.0
    absent = _absent(case, by_rank)
    saved, cause, bound = _saved(case, by_rank, bool(absent))
    can_hide = hideable(case, {r: p.ops for r, p in by_rank.items()})
    ranks = guilty({r: p.wall_ns for r, p in by_rank.items()})
    worst = max(ranks, key=lambda r: (by_rank[r].wall_ns, -r))
    what = said(key)
    each = len(by_rank)
    n = sum(len(p.ops) for p in by_rank.values()) // each
    by = told_by(key)
    names = _names(case, worst, by_rank[worst]) if by == "op" else [key]
    row = exposed_in(case, by, worst, names)
    shown = int(row["exposed_wall_ns"])
    among = f" (of {about(shown)} in `{short_range(shorten(str(row[by])))}`)" if shown != wall else ""
    within = f"; in {', '.join(stages)}" if stages else ""
    which = f"--rank {ranks_text(ranks)}" if len(ranks) < len(case.ranks) else ""
    then = advice(f"exposed-communication/{key if key in _ADVISED else 'other'}")
    return Finding(
        ID,
        title("exposed-communication", share=share, what=what),
        can_hide.of(saved),
        cause,
        f"{several(n, 'communication')} per rank and step take {about(comm / each)}; {about(exposed / each)} of that "
        f"({share:.0f} %) is not overlapped with compute; most on rank {worst}: "
        f"{about(wall)}{among}{_rate(case, by_rank)}{within}. "
        f"That includes waiting for other ranks, which the estimate leaves out{absent}{can_hide.words}",
        advice("exposed-communication", then=then) if absent else then,
        ("overlap", " ".join(filter(None, ("" if by == "stage" else f"--by {by}", which)))),
        ranks=ranks,
        figures=(shown,),
        stage=key if by == "stage" else None,
        where=places_of(case, most_exposed(by_rank)),
        covers=spans_of(case, {r: p.ops for r, p in by_rank.items()}),
        bound=bound,
    )


def _names(case: Case, rank: int, part: Part) -> list[str]:
    """Names of the ops of a part."""
    data = case.data_of(rank)
    return case.profile.names.gather(np.unique(data.name[part.ops])).to_list()


def _saved(case: Case, by_rank: dict[int, Part], absent: bool) -> tuple[int, Cause, bool]:
    """What a replay gives back, how sure that is, and whether it is only a bound.

    Without events in the trace, or without a replay, it is what is exposed of the transfers.

    Where nothing tells what waits for what, it is what the middle rank exposes after the last rank has come.
    """
    instant = Change(transfers_instant={r: p.ops for r, p in by_rank.items()})
    try:
        if case.faithful:
            saved = case.credit(ID, instant, max(p.wall_ns for p in by_rank.values()))
            if absent:
                return saved, "possible", True
            return saved, "certain" if case.path.met is not None else "likely", False
    except CannotAnswer:
        pass
    moved, matched = exposed_transfers(case, {r: p.ops for r, p in by_rank.items()}, case.before(ID).transfer_less_ns)
    return int(np.median(moved)), "likely" if matched else "possible", not matched


def _absent(case: Case, by_rank: dict[int, Part]) -> str:
    """Words for transfers most of which lack a rank that is not in the profile: all may be waiting for it."""
    try:
        table = case.once(sides).filter(pl.col("size").is_null() | (pl.col("size") > 1))
    except CannotAnswer:
        return ""
    ops = [table.filter((pl.col("rank") == r) & pl.col("op").is_in(p.ops.tolist())) for r, p in by_rank.items()]
    met = pl.concat(ops).unique("meeting")
    # How large a group is is said when it is made: a job that lacks ranks may lack one of any group.
    gone = any(note.code == "ranks-missing" for note in case.path.notes)
    lacking = met.filter(
        pl.when(pl.col("size").is_null()).then(gone).otherwise(pl.col("present") < pl.col("size"))
    ).height
    if 2 * lacking <= met.height:
        return ""
    return (
        f"; but {lacking} of {met.height} involve ranks that are not in the profile, and all may be waiting for those"
    )


def _rate(case: Case, by_rank: dict[int, Part]) -> str:
    """How fast the transfers themselves are, where their bytes are known."""
    try:
        table = case.once(sides).filter((pl.col("bytes") > 0) & (pl.col("took_ns") > 0))
    except CannotAnswer:
        return ""
    ops = [table.filter((pl.col("rank") == r) & pl.col("op").is_in(p.ops.tolist())) for r, p in by_rank.items()]
    transfers = pl.concat(ops).unique("meeting")
    if transfers.height == 0:
        return ""
    size, rate = transfers["bytes"].median(), (transfers["bytes"] / transfers["took_ns"]).median()
    return f"; {float(size or 0) / 1e6:.1f} MB each at {float(rate or 0):.0f} GB/s (medians)"  # type: ignore[arg-type]


def notes(case: Case) -> list[Note]:
    """Transfers that were left out."""
    return first_use_notes(case)

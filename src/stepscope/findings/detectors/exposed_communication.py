"""Transfers that nothing runs beside.

Communication is taken together by the stage that launched it; where it is in none, by what it serves (experts,
pipeline, data, tensor or context parallelism), else by its operation. What it could give back is the step replayed with
those transfers taking no time: ranks still wait for whoever is late, so that a straggler's victims are not blamed on
the network. It is what is left once other causes are gone: slow links, stragglers, and communication that was only
issued badly have findings of their own. A collective on the compute stream is in order with compute, and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analyses._change import Change
from stepscope.analyses._comm import comm_ops
from stepscope.analyses._commkind import kinds
from stepscope.analyses._members import ranks_text
from stepscope.analyses._purpose import UNKNOWN, purpose_of
from stepscope.analyses._rank import NO_STAGE, RankData
from stepscope.analyses._window import Window
from stepscope.errors import CannotAnswer
from stepscope.findings.case import Case
from stepscope.findings.detectors.slow_link import places_of
from stepscope.findings.finding import Confidence, Finding, Place
from stepscope.findings.hosts import guilty
from stepscope.findings.known import fixes
from stepscope.findings.words import ms
from stepscope.intervals import subtract, union
from stepscope.model.profile import Profile

ID = "exposed-communication"
I64 = npt.NDArray[np.int64]

_WORDS = {
    "ep_a2a": "the experts' all-to-all",
    "ep_meta": "the experts' token counts",
    "pp_p2p": "the pipeline's send/recv",
    "cp_ring": "the context-parallel ring",
    "tp": "tensor-parallel communication",
    "dp": "data-parallel communication",
}
_TRY = {
    "ep_a2a": "run shared experts or half of the micro-batch beside it, or overlap forward with backward chunks",
    "pp_p2p": "send and receive asynchronously, one micro-batch ahead; or interleave virtual stages",
    "dp": "reduce in buckets during the backward pass; prefetch the next layer's parameters",
}
_OTHERWISE = "give it a stream of its own, launch it before compute that does not need it, and wait where it is used"


@dataclass(frozen=True)
class _Part:
    """What one rank exposes of one kind."""

    ops: I64
    exposed: I64
    comm_ns: int
    wall_ns: int


def _parts(profile: Profile, data: RankData, window: Window) -> dict[str, _Part]:
    """By stage, purpose or operation."""
    comm = comm_ops(data, window)
    if len(comm.ops) == 0:
        return {}
    stage = data.stage_of(comm.ops)
    purpose = purpose_of(profile, data, comm.ops)
    names = profile.names.gather(data.name[comm.ops])
    kind = kinds(names).fill_null("communication")
    key = pl.select(
        pl.when(stage != NO_STAGE).then(stage).when(purpose != UNKNOWN).then(purpose).otherwise(kind).alias("key")
    ).to_series()
    found = {}
    for text in key.unique().sort().to_list():
        mine = (key == text).to_numpy() & ~comm.barrier
        if mine.any():
            wall = subtract(union(comm.start[mine], comm.end[mine]), data.compute).length()
            found[str(text)] = _Part(comm.ops[mine], comm.exposed[mine], int(comm.length[mine].sum()), wall)
    return found


def detect(case: Case) -> list[Finding]:
    every = case.each_rank(_parts)
    found = []
    for key in sorted({k for parts in every.values() for k in parts}):
        mine = {r: parts[key] for r, parts in every.items() if key in parts}
        if case.material(max(p.wall_ns for p in mine.values())):
            found.append(_finding(case, key, mine))
    return found


def _finding(case: Case, key: str, mine: dict[int, _Part]) -> Finding:
    wall = max(p.wall_ns for p in mine.values())
    comm = sum(p.comm_ns for p in mine.values())
    exposed = sum(int(p.exposed.sum()) for p in mine.values())
    share = 100.0 * exposed / comm if comm else 0.0
    saved, confidence = _saved(case, mine)
    ranks = guilty({r: p.wall_ns for r, p in mine.items()})
    worst = max(ranks, key=lambda r: (mine[r].wall_ns, -r))
    what = _WORDS.get(key, f"communication of {key}" if key.startswith("stage") else f"{key.replace('_', '-')}s")
    each = len(mine) * case.steps
    n = sum(len(p.ops) for p in mine.values()) // each
    by = "" if key.startswith("stage") else "--by purpose" if key in _WORDS else "--by op"
    some = f"--rank {ranks_text(ranks)}" if len(ranks) < len(case.ranks) else ""
    return Finding(
        ID,
        f"{what} {'are' if what.endswith('s') else 'is'} {share:.0f} % exposed",
        saved,
        confidence,
        f"{n} per rank and step, {ms(comm / each)} in all, of which {ms(exposed / each)} ({share:.0f} %) have no "
        f"compute beside them; most on rank {worst}: {ms(wall / case.steps)}. That includes waiting for other ranks, "
        "which the time to be given back does not",
        _TRY.get(key, _OTHERWISE),
        ("overlap", " ".join(filter(None, (by, some)))),
        ranks=ranks,
        stage=key if key.startswith("stage") else None,
        where=_where(case, mine),
    )


def _saved(case: Case, mine: dict[int, _Part]) -> tuple[int, Confidence]:
    """What a replay gives back; without one, what the worst rank exposes, as a bound.

    The step's way leads through several ranks: it can gain from what each of them exposes.
    """
    instant = Change(instant={r: p.ops for r, p in mine.items()})
    walls = [p.wall_ns for p in mine.values()]
    try:
        saved = case.saved(instant, sum(walls), beside=case.once(fixes))
    except CannotAnswer:
        return max(walls) // case.steps, "low"
    return saved, "high" if case.path.met is not None and bool(case.path.steps["events"].all()) else "medium"


def _where(case: Case, mine: dict[int, _Part], most: int = 10) -> tuple[Place, ...]:
    """The ops with most exposed."""
    worst = []
    for rank, part in mine.items():
        top = np.argsort(-part.exposed, kind="stable")[:most]
        worst += [(-int(part.exposed[i]), rank, int(part.ops[i])) for i in top.tolist()]
    return places_of(case, [(rank, op) for _, rank, op in sorted(worst)[:most]])

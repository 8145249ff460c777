"""Communication that could run beside compute, and does not, because of how it was issued.

Three ways to do it, each told by what is recorded:

- `waited`: the compute stream waits for an op as soon as it was launched, although what needs its result waits for it
  again, later. The first wait is taken out.
- `gradients`: a reduction over data-parallel ranks is waited for at once, although nothing needs it before the
  optimizer, where the program waits for that stream anyway. The wait is taken out.
- `inline`: the op is on the compute stream itself, although the program waits for it later as if it were not. It is
  put on a stream of its own.

What it gives back is the step replayed so. Communication that is waited for at once, and never again, may be needed at
once: what it could save is the step replayed with it taking no time, which is a bound only.
The pipeline's send/recv is not counted there, since a stage needs what it receives. What communication is for may say
more: parameters that are gathered only when they are needed (FSDP without prefetching), and gradients that are all
reduced at once, after the backward pass (one bucket); of those the last usual bucket stays exposed.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.accounting.exposure import CommOps, comm_ops
from stepscope.derive.comm.calls import sides_of
from stepscope.derive.rank.data import NO_STAGE, RankData
from stepscope.derive.replay.change import Change
from stepscope.derive.windows.window import Window
from stepscope.findings.case import Case
from stepscope.findings.evidence.hosts import sure
from stepscope.findings.evidence.issued import Serialized, at_once, serialized
from stepscope.findings.evidence.parts import exposed_transfers, most_exposed, parts, said, spans_of, told_by, verb
from stepscope.findings.evidence.places import places_of
from stepscope.findings.evidence.rounds import rounds
from stepscope.findings.evidence.shared_gpu import hideable
from stepscope.findings.evidence.shown import communication
from stepscope.findings.finding import Finding
from stepscope.findings.texts import advice, title
from stepscope.model.profile import Profile
from stepscope.model.ranks import ranks_text, some_ranks
from stepscope.model.statement import several
from stepscope.model.threshold import Threshold
from stepscope.model.units import about

USUAL_BUCKET = Threshold(
    25,
    "MB",
    "what DDP reduces at once by default: the last bucket of a backward pass has no compute left beside it",
    ("tests/findings/test_issued_late.py",),
)


ID = "serialized-communication"
_NOT_RECORDED = "How much of it is needed immediately was not recorded"


def remedy(case: Case) -> Change:
    """The step with nothing serialized."""
    issued = case.once(_serialized)
    return Change(
        stream_waits_dropped={r: s.waits for r, s in issued.items() if len(s.waits)},
        own_stream={r: (s.inline, s.lane) for r, s in issued.items() if len(s.inline)},
    )


def detect(case: Case) -> list[Finding]:
    too_early = {r: s for r, s in case.once(_serialized).items() if len(s.waited) or len(s.inline)}
    return [*_bounded(case), *(_shown(case, too_early) if too_early else [])]


def _serialized(case: Case) -> dict[int, Serialized]:
    """What each rank serializes; nothing where all of it is reductions that need not be made (`repeated-reduction`)."""
    issued, needless = case.once(serialized), case.once(rounds)
    made = {r: np.union1d(s.waited, s.inline) for r, s in issued.items()}
    if needless and all(r in needless and np.isin(ops, needless[r].ops).all() for r, ops in made.items()):
        return {}
    return issued


def _bounded(case: Case) -> list[Finding]:
    """Communication that is waited for at once: what it is for may say why, else nothing shows when it is needed."""
    why = {key: told for key in sorted(case.once(at_once)) if (told := _why(case, key)) is not None}
    rest = sorted(case.once(at_once) - set(why))
    return [f for keys, told in ((rest, None), *(([k], w) for k, w in why.items())) for f in _at_once(case, keys, told)]


class _Why(Struct, frozen=True):
    """What a person would call it, what to do about it, and how much of the transfers that can hide."""

    title: str
    meaning: str
    advice: str
    hidden: float = 1.0


def _why(case: Case, key: str) -> _Why | None:
    """Parameters that are gathered too late, and gradients that are all reduced at once."""
    if key == "dp_params":
        return _Why(
            "parameters are gathered when they are needed, not before",
            "while one layer computes, the parameters of the next could be gathered",
            "prefetch: FSDP's backward_prefetch=BACKWARD_PRE and forward_prefetch=True, FSDP2's "
            "set_modules_to_forward_prefetch; units of a layer each; keep parameters where memory allows "
            "(reshard_after_forward=False)",
        )
    ops = {r: of[key].ops for r, of in case.once(parts).items() if key in of}
    if key != "dp_grads" or any(len(of) > 1 for of in ops.values()):
        return None
    rank, of = next(iter(ops.items()))
    sizes = sides_of(case.profile, case.data_of(rank)).filter(pl.col("op").is_in(of.tolist()))["bytes"]
    bucket = min(USUAL_BUCKET.value * 1e6 / max(float(sizes.max() or 0), 1.0), 1.0)  # type: ignore[arg-type]
    return _Why(
        "all gradients are reduced at once, after the backward pass",
        f"in buckets of {USUAL_BUCKET} all but the last could be reduced while the backward pass goes on",
        "reduce in buckets: DDP's bucket_cap_mb (25 by default), FSDP units of a layer each; make sure that "
        "nothing (find_unused_parameters, a hook, static_graph) holds them all back until the end",
        1.0 - bucket,
    )


def _at_once(case: Case, keys: list[str], why: _Why | None) -> list[Finding]:
    early = {r: [of[k] for k in keys if k in of] for r, of in case.once(parts).items()}
    wall = {r: sum(p.wall_ns for p in ps) for r, ps in early.items()}
    if not keys or not case.material(max(wall.values())):
        return []
    joined = {r: np.unique(np.concatenate([p.ops for p in ps])) for r, ps in early.items() if ps}
    ranks = tuple(sorted(joined))
    names, be = (said(keys[0]), verb(keys[0])) if len(keys) == 1 else (f"communication of {', '.join(keys)}", "is")
    if len(keys) > 1 and not any(told_by(key) == "stage" for key in keys):
        names, be = " and ".join(map(said, keys)), "are"
    them = "them" if be == "are" else "it"
    if case.faithful:
        saved = case.credit(ID, Change(transfers_instant=joined), sum(wall.values()), kind="bound")
    else:  # nothing says what waits for what: what is exposed of the transfers
        shorter = case.before(ID, "bound").transfer_less_ns
        saved = int(np.median(exposed_transfers(case, joined, shorter)[0]))
    saved = round(saved * (why.hidden if why else 1.0))
    can_hide = hideable(case, joined)
    n = sum(map(len, joined.values())) // len(joined)
    worst = max(ranks, key=lambda r: (wall[r], -r))
    exposed = int(communication(case, worst)["exposed_wall_ns"])
    return [
        Finding(
            ID,
            why.title if why else f"{names} {be} waited for immediately, so that nothing overlaps {them}",
            can_hide.of(saved),
            "likely" if why else "possible",
            f"{several(n, 'communication')} per rank and step: the compute stream waits for each before anything else "
            f"is launched; up to {about(max(wall.values()))} per rank and step is not overlapped "
            f"with compute (of {about(exposed)} of all communication on rank {worst}). "
            f"{_capital(why.meaning) if why else _NOT_RECORDED}{can_hide.words}",
            why.advice
            if why
            else "if the result is not needed immediately, wait where it is used (`work.wait()` just before it), and "
            "launch compute that does not need it in between",
            ("overlap", ""),
            ranks=ranks,
            figures=(exposed,),
            stage=keys[0] if len(keys) == 1 and told_by(keys[0]) == "stage" else None,
            where=places_of(case, most_exposed({r: p for r, ps in early.items() for p in ps[:1]})),
            covers=spans_of(case, joined),
            high_ns=None if why else saved,  # if nothing on a shared GPU is in its way
            bound=why is None,
        )
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(case: Case, too_early: dict[int, Serialized]) -> list[Finding]:
    measured = case.each_rank(lambda p, d, w: _exposed(p, d, w, too_early.get(d.rank)))
    longest = max(ns for ns, _, _, _ in measured.values())
    if not case.material(longest):
        return []
    issued_ops = {r: np.union1d(s.waited, s.inline) for r, s in too_early.items()}
    too_early = {r: s for r, s in too_early.items() if case.material(measured[r][0])}  # those worth naming
    ops = [op for _, ops, _, _ in measured.values() for op in ops]
    stages = sorted({s for _, _, stages, _ in measured.values() for s in stages})
    waited = sum(len(s.waited) for s in too_early.values())
    inline = sum(len(s.inline) for s in too_early.values())
    gradients = sum(s.gradients for s in too_early.values())
    ranks = tuple(sorted(too_early))
    per_step = (waited + inline) // max(len(too_early), 1)
    how = []
    if waited:
        how.append("the compute stream waits for them as soon as they are launched, although it waits again later")
    if inline:
        how.append("they are on the compute stream itself, although it waits for them later")
    if gradients:
        how.append(f"{gradients // max(len(too_early), 1)} reduce gradients, which only the optimizer needs")
    who = "every rank" if len(ranks) == len(case.ranks) else some_ranks(ranks)
    worst = max(too_early, key=lambda r: (measured[r][0], -r))
    total = communication(case, worst)
    can_hide = hideable(case, issued_ops)
    beside, figure = ("exposed", "exposed_ns") if total["exposed_ns"] else ("in order with compute", "barrier_ns")
    issued = "waited for immediately" if waited >= inline else "issued on the compute stream"
    name = f"communication of {stages[0]}" if len(stages) == 1 else "communication"
    return [
        Finding(
            ID,
            title("serialized-communication/shown", name=name, issued=issued),
            can_hide.of(case.credit(ID, at_most=sum(ns for ns, _, _, _ in measured.values()))),
            sure(case),
            f"{several(per_step, 'communication')} per step on {who}: {'; '.join(how)}; {about(longest)} of that "
            f"per step is not overlapped with compute; on rank {worst}, {about(total[figure])} of all communication "
            f"is {beside}{can_hide.words}",
            advice(
                "serialized-communication/shown", more="; give it a stream of its own (async_op=True)" if inline else ""
            ),
            ("overlap", f"--rank {ranks_text(ranks)}" if len(ranks) < len(case.ranks) else ""),
            ranks=ranks,
            figures=(int(total[figure]),),
            stage=stages[0] if len(stages) == 1 else None,
            where=places_of(case, [(r, o) for _, r, o in sorted(ops, reverse=True)[:10]]),
            covers=spans_of(case, issued_ops),
        )
    ]


def _exposed(
    profile: Profile, data: RankData, window: Window, issued: Serialized | None
) -> tuple[int, list[tuple[int, int, int]], set[str], int]:
    """Time without compute beside a rank's serialized ops, the longest of them, and their stages."""
    if issued is None:
        return 0, [], set(), 0
    comm: CommOps = comm_ops(data, window)
    chosen = np.isin(comm.ops, np.union1d(issued.waited, issued.inline))
    ops, exposed = comm.ops[chosen], comm.exposed[chosen]
    order = np.argsort(-exposed, kind="stable")[:10]
    stages = {s for s in data.stage_of(ops).unique().to_list() if s != NO_STAGE} if len(ops) else set()
    places = [(int(exposed[i]), data.rank, int(ops[i])) for i in order.tolist()]
    return int(exposed.sum()), places, stages, len(ops)

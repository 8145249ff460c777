"""Jobs that hang, drawn by their seed, and what their dumps can tell, by a rule that knows the plan and never asks
stepscope."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from stepscope.simulate.hang.faults import CLASSES
from stepscope.simulate.hang.job import Call, HangJob, Program, program
from stepscope.simulate.hang.play import NEVER
from stepscope.simulate.hang.run import Hang

#: Calls of all ranks together that one job may have: larger ones take minutes to play.
_MOST_CALLS = 40_000


def drawn(seed: int, most: int = 64) -> tuple[HangJob, str, str]:
    """A job of 8 to `most` ranks, its class and the format of its dumps."""
    random = Random(f"mixed {seed}")
    while True:
        tp, pp, dp = random.choice((1, 2, 3, 4, 6, 8)), random.choice((1, 2, 3, 4, 6, 8)), random.randrange(1, 17)
        if not 8 <= tp * pp * dp <= most:
            continue
        job = HangJob(
            tp=tp,
            pp=pp,
            dp=dp,
            ep=random.choice([e for e in range(1, dp + 1) if dp % e == 0]),
            layers=random.randrange(1, 6),
            micro_batches=random.randrange(1, 7),
            steps=random.randrange(3, 10),
            seed=seed,
            jitter=random.choice([0, 0.1, 0.2, 0.4]),
            buffer=random.choice([20_000, 2000, 2000, 500, 200, 100, 60]),
            missing=random.choice([0, 0, 0, 0, 1, 2, 3]),
            culprit_lost=random.random() < 0.04,
            timing=random.random() < 0.5,
            batched=random.random() < 0.4,
            shared_names=random.random() < 0.3,
            version=f"2.{random.randrange(1, 11)}",
        )
        if sum(map(len, program(job).calls)) <= _MOST_CALLS:
            return job, list(CLASSES)[seed % len(CLASSES)], random.choice(("pickle", "pickle", "json"))


@dataclass(frozen=True)
class Tells:
    """What the dumps of a job can tell. `classes` count as right; `lacking` is what would have shown the fault, and is
    in no dump."""

    classes: frozenset[str]
    ranks: frozenset[int]
    lacking: str = ""


def tells(done: Hang, usual: Program) -> Tells:
    """By what was planted, and by which of it rings and logs still hold.

    A log that names the rank tells. A call that was made otherwise tells where the rank's ring holds it, and any ring a
    like one, or for an order the two calls that usually follow each other. A host that stopped tells by its dump, and
    by a call of another rank that waits for it; a GPU, by its first call that did not begin; a link, by the call on any
    of its members. A process that is gone tells by being the only rank without a dump.
    """
    fault, truth = done.fault.name, done.truth()
    if fault in ("slow", "healthy"):
        return Tells(frozenset({"slow", "running"} if fault == "slow" else {"running"}), frozenset())
    classes = {truth["class"]}
    if not done.made.job.timing and fault in ("gpu", "link"):
        classes.add("gpu-or-link")
    lacking = "" if done.logs else _lacking(done, usual)
    own = done.made.calls[done.fault.rank]
    if fault == "short" and own[done.fault.call - 1].step != usual.calls[done.fault.rank][done.fault.call].step:
        classes.add("host-stopped")  # it left out a whole step: all that can be seen is that its last one is not there
    if lacking and not _seen(done, own[min(done.fault.call, len(own) - 1)]):
        classes.add("host-stopped")  # in what the dumps hold, it makes no further call
    return Tells(frozenset(classes), frozenset(truth["ranks"]), lacking)


def _lacking(done: Hang, usual: Program) -> str:
    fault, rank, n = done.fault.name, done.fault.rank, done.fault.call
    rings = {r: _held(done, r) for r in range(done.made.job.world) if r not in done.missing}
    if fault == "crash":
        if len(done.missing) > 1:
            return "which of the ranks without a dump is gone"
        return "" if _waited_for(done, rings, rank) else "a call that waits for the rank"
    if fault == "link":
        call = done.made.calls[rank][n]
        members = [q for q in done.made.groups[call.group].members if q in rings]
        known = any(_same(done, rank, n, q, rings[q]) for q in members) or (_status(done) and not call.pairs)
        return "" if known else "the call over the link"
    if rank not in rings:
        return f"the dump of rank {rank}"
    first, last = rings[rank]
    if fault == "host":
        return "" if _waited_for(done, rings, rank) else "a call that waits for the rank"
    if fault == "gpu":
        never = done.played.ended[rank]
        waits = next((m for m in range(n, last) if never[m] == NEVER and not _hosted(done, rank, m)), last)
        call = done.made.calls[rank][min(waits, last - 1)]
        return "" if waits >= first or (_status(done) and not call.pairs) else "the call that did not begin"
    due = usual.calls[rank][n]
    if not all(_seen(done, call) for call in (due, done.made.calls[rank][n])):
        return "the call that was made otherwise"
    if not first <= n - (fault in ("skip", "short")) or n >= last:
        return "the call that was made otherwise"
    if fault in ("size", "type", "group"):
        like = any(
            _alike(call, due)
            for q, ring in rings.items()
            for m, call in enumerate(usual.calls[q][slice(*ring)], ring[0])
            if (q, m) != (rank, n)
        )
        return "" if like else "a call that shows what was due"
    before = usual.calls[rank][n - 1]
    like = any(
        _alike(done.made.calls[q][m], before) and _alike(done.made.calls[q][m + 1], due)
        for q, (begin, end) in rings.items()
        for m in range(begin, end - 1)
    )
    return "" if like else "what usually follows"


def _held(done: Hang, rank: int) -> tuple[int, int]:
    """The calls that a ring holds: the first, and the one after the last."""
    calls, job = done.made.calls[rank], done.made.job
    count = sum(t <= done.dumped_ns[rank] for t in done.played.enqueued[rank])
    room, first = job.buffer, count
    while first > 0:
        pairs = len(calls[first - 1].pairs)
        room -= _seen(done, calls[first - 1]) * (pairs + 1 if pairs > 1 or (job.batched and pairs) else 1)
        if room < 0:
            break
        first -= 1
    return first, count


def _status(done: Hang) -> bool:
    """Whether dumps of this version say how far each group came."""
    return int(done.made.job.version.split(".")[1]) >= 3


def _hosted(done: Hang, rank: int, n: int) -> bool:
    return bool(done.made.groups[done.made.calls[rank][n].group].backend)


def _seen(done: Hang, call: Call) -> bool:
    """Whether any recorder that was dumped notes the call. One of another library has a ring of its own."""
    return done.made.job.recorders or not done.made.groups[call.group].backend


def _alike(call: Call, other: Call) -> bool:
    return (call.site, call.kind, call.elements, call.dtype) == (other.site, other.kind, other.elements, other.dtype)


def _same(done: Hang, rank: int, n: int, other: int, ring: tuple[int, int]) -> bool:
    """Whether the ring of `other` holds its part of call `n` of `rank`."""
    call, seq = done.made.calls[rank][n], done.played.seq[rank][n]
    calls = done.made.calls[other]
    return any(
        calls[m].group == call.group
        and _seen(done, call)
        and (calls[m].pairs == call.pairs if call.pairs else done.played.seq[other][m] == seq)
        and done.played.ended[other][m] == NEVER
        for m in range(*ring)
    )


def _waited_for(done: Hang, rings: dict[int, tuple[int, int]], rank: int) -> bool:
    """Whether any ring holds a call under way that `rank` did not make."""
    made = {
        (done.made.calls[rank][m].group, done.played.seq[rank][m], done.made.calls[rank][m].pairs)
        for m in range(len(done.made.calls[rank]))
        if done.played.enqueued[rank][m] <= done.dumped_ns[rank]
    }
    for other, ring in rings.items():
        for m in range(*ring) if other != rank else ():
            call = done.made.calls[other][m]
            members = done.made.groups[call.group].members
            ends = {members[place] for pair in call.pairs for place in pair} if call.pairs else set(members)
            key = (call.group, done.played.seq[other][m], call.pairs)
            if (
                rank in ends
                and _seen(done, call)
                and done.played.ended[other][m] == NEVER
                and (call.pairs or key not in made)
            ):
                return True
    return _status(done) and any(
        rank in g.members and set(g.members) & set(rings) for g in done.made.groups if not g.backend
    )

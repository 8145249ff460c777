"""The answer about a hang as a result: a row for each place where ranks stand; the verdict, the chain and the advice
beside it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from stepscope.hang.ends import chain
from stepscope.hang.places import Place, meeting_text, places, ranks_text, site
from stepscope.hang.verdict import CLASSES, NOT_HUNG, Verdict, verdict
from stepscope.hang.wording import advice, before, statement
from stepscope.model.flight import NONE, Flight
from stepscope.model.note import Note, noted
from stepscope.model.result import Result, rows


class Row(TypedDict):
    ranks: Annotated[str, "ranks that stand there"]
    count: Annotated[int, "how many"]
    role: Annotated[str, "culprit, or waits"]
    state: Annotated[str, "scheduled (enqueued), started (runs on the GPU), idle (no call under way), no dump"]
    call: Annotated[str, "the call that they are in; of idle ranks, their last"]
    group: Annotated[str, "purpose or name of the process group"]
    seq: Annotated[int, "sequence number of the call in its group"]
    site: Annotated[str, "the line of the job that made the call"]
    waits_ns: Annotated[int, "how long before the dump the first of them made the call"]


class Link(TypedDict):
    """A step of the way from a rank that waits to where the waiting ends."""

    rank: int
    waits_in: str
    for_rank: int | None
    text: str


#: Places that are listed; what is left out is counted.
_MOST_STEPS = 12


def hang(flight: Flight) -> Result:
    """Which rank, which call, why."""
    conclusion = verdict(flight)
    listed = places(flight, conclusion)
    dumped = max((d.dumped_ns for d in flight.dumps if d.dated == conclusion.pace.dated), default=NONE)
    table = [_row(place, dumped) for place in listed]
    result = Result(rows(Row, table), notes=_notes(flight, conclusion), command="hang")
    result.ranks, result.world = len(flight.dumps), flight.world
    result.summary = {
        "verdict": conclusion.kind,
        "meaning": CLASSES[conclusion.kind],
        "culprits": conclusion.ranks,
        "sure": conclusion.sure,
        "also_possible": list(conclusion.also),
        "hung": conclusion.kind not in NOT_HUNG,
        "still_ns": conclusion.pace.still_ns if conclusion.pace.still_ns != NONE else None,
        "call": _call(flight, conclusion),
        "culprit_call": _culprit_call(flight, conclusion),
        "frames": [_frames(place) for place in listed if place.frames][:_MOST_STEPS],
        "chain": _chain(flight, conclusion),
        "before": before(flight, conclusion),
        "logs": [{"text": fact.text, "file": fact.path} for fact in conclusion.facts][:_MOST_STEPS],
        "missing_ranks": flight.missing,
        "record_next_time": advice(flight, conclusion),
        "statement": statement(flight, conclusion, listed),
    }
    return result


def _row(place: Place, dumped: int) -> dict[str, Any]:
    waits = dumped - place.since_ns if place.since_ns != NONE and dumped != NONE and place.state != "idle" else None
    return {
        "ranks": ranks_text(place.ranks),
        "count": len(place.ranks),
        "role": place.role,
        "state": place.state,
        "call": place.call or None,
        "group": place.group or None,
        "seq": place.seq if place.seq != NONE else None,
        "site": place.site or None,
        "waits_ns": waits if waits is None or waits >= 0 else None,
    }


def _frames(place: Place) -> dict[str, Any]:
    frames = [f"{frame.file}:{frame.line} {frame.name}" for frame in place.frames]
    return {"ranks": ranks_text(place.ranks), "role": place.role, "frames": frames}


def _call(flight: Flight, verdict: Verdict) -> dict[str, Any] | None:
    """The call that everybody waits in at last."""
    if verdict.meeting is None or verdict.waits is None:
        return None
    came = verdict.waits.came.get(verdict.meeting, {})
    usual = [row for rank, row in came.items() if rank not in verdict.ranks] or list(came.values())
    if not usual:
        return None
    calls, row = flight.calls, usual[0]
    group = flight.groups[verdict.meeting[0]]
    return {
        "call": flight.signatures[int(calls.signature[row])].text,
        "group": group.name,
        "purpose": group.purpose,
        "seq": int(calls.seq[row]),
        "members": list(group.members),
        "in_it": sorted(came),
        "site": site(flight.stacks[int(calls.stack[row])]) or None,
    }


def _culprit_call(flight: Flight, verdict: Verdict) -> dict[str, Any] | None:
    """What the culprit did instead, where that is known."""
    if verdict.deviation is None:
        return None
    calls, made, due = flight.calls, verdict.deviation.call, verdict.deviation.due
    return {
        "rank": verdict.deviation.rank,
        "made": flight.signatures[int(calls.signature[made])].text,
        "made_in": flight.groups[int(calls.group[made])].text,
        "made_at": site(flight.stacks[int(calls.stack[made])]) or None,
        "due": flight.signatures[int(calls.signature[due])].text,
        "due_in": flight.groups[int(calls.group[due])].purpose,
        "due_at": site(flight.stacks[int(calls.stack[due])]) or None,
    }


def _chain(flight: Flight, verdict: Verdict) -> list[Link]:
    """The longest way from a rank that waits to where the waiting ends, a step each."""
    who = verdict.waits
    if who is None or verdict.kind in NOT_HUNG:
        return []
    ways = [chain(who, flight, rank) for rank in _starts(flight, verdict)]
    best = max(ways, key=lambda way: (bool({s[2] for s in way} & set(verdict.ranks)), len(way)), default=[])
    steps: list[Link] = []
    for rank, meeting, other in best[:_MOST_STEPS]:
        row = who.came[meeting][rank]
        call = flight.signatures[int(flight.calls.signature[row])].text
        where = meeting_text(flight, meeting, call)
        steps.append({"rank": rank, "waits_in": where, "for_rank": other, "text": _step(rank, where, other)})
    return steps


def _starts(flight: Flight, verdict: Verdict) -> list[int]:
    """A rank of each place is enough: those at one place wait for the same."""
    seen: dict[tuple[int, ...], int] = {}
    for rank, running in verdict.waits.running.items() if verdict.waits else ():
        if running and rank not in verdict.ranks:
            seen.setdefault(verdict.waits.meeting[running[0]], rank)  # type: ignore[union-attr]
    return sorted(seen.values())[:256]


def _step(rank: int, where: str, other: int | None) -> str:
    return f"rank {rank} waits in {where}" + (
        f" for rank {other}" if other is not None else ", where nobody is missing"
    )


def _notes(flight: Flight, verdict: Verdict) -> list[Note]:
    notes = [noted("dump-refused", why=why) for _, why in flight.refused[:_MOST_STEPS]]
    if flight.missing:
        notes.append(
            noted(
                "dumps-missing",
                number=len(flight.missing),
                all=flight.world,
                some=ranks_text(flight.missing),
                ranks=flight.missing[:64],
            )
        )
    if any(dump.overflowed for dump in flight.dumps):
        notes.append(noted("ring-overflowed"))
    if verdict.pace.state == "unknown":
        notes.append(noted("dump-time-unknown"))
    elif verdict.pace.dated == "file":
        notes.append(noted("dump-time-of-file"))
    if not flight.timed and verdict.kind not in NOT_HUNG:
        notes.append(noted("no-timing"))
    return notes

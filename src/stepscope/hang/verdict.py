"""The verdict: what kind of hang it is, the fewest ranks that explain the dumps, and how sure that is.

Rules in this order, the first that applies. A log that names the rank (out of memory, exit) goes before what dumps
suggest. A call that one rank made otherwise than usual goes before who waits for whom: all waiting follows from it.
Then come the ends of the waits: a rank that waits for nobody, a GPU that has begun nothing, a meeting to which all
came; and a rank without a dump last, as it may only have lost its dump.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from stepscope.errors import CannotAnswer
from stepscope.hang.deviations import Deviation, deviations, kept_up, mismatches
from stepscope.hang.ends import Ends, ends
from stepscope.hang.evidence import out_of_step
from stepscope.hang.numbering import tokens
from stepscope.hang.pace import Pace, pace
from stepscope.hang.waits import Meeting, Waits, members_of, waits
from stepscope.model.flight import DEFAULT_GROUP, LOST, MAIN, NONE, Fact, Flight, Frame
from stepscope.model.units import about

Sure = Literal["certain", "likely", "possible"]
#: Xids of NVLink and of the fabric; all others are of the GPU itself.
_LINK_XIDS = (74, 137, 145, 149, 150, 155, 156)

#: What a verdict can be.
CLASSES = {
    "host-stopped": "the host stopped: the process made no further call",
    "gpu-stopped": "the GPU stopped: calls were enqueued, and none of them began",
    "link-dead": "a link or a peer is dead: all ranks are in the same call, and it does not end",
    "gpu-or-link": "a GPU stopped, or a link is dead: without timing the dumps cannot tell which",
    "mismatch-order": "calls in another order: a rank left a call out, or made two in the other order",
    "mismatch-size": "calls of different sizes",
    "mismatch-type": "calls of different kinds, or of different types of elements",
    "mismatch-group": "a call to another process group",
    "crashed": "a process is gone",
    "out-of-memory": "a process ran out of memory",
    "deadlock": "process groups wait for each other in a ring",
    "slow": "slow, not hung",
    "running": "running: the dumps show no hang",
}
#: Calls that do not match, of ranks whose usual calls are not known, may come of any of these.
_UNLIKE = ("mismatch-order", "mismatch-group", "mismatch-type", "mismatch-size", "deadlock")
NOT_HUNG = ("slow", "running")


class Verdict(msgspec.Struct):
    """`ranks` is the smallest set that the dumps allow; `meeting` is the call that everybody waits in at last."""

    kind: str
    ranks: list[int]
    sure: Sure
    pace: Pace
    #: other kinds that the dumps allow
    also: tuple[str, ...] = ()
    meeting: Meeting | None = None
    deviation: Deviation | None = None
    #: ranks whose signature in `meeting` differs
    unlike: dict[int, list[int]] = {}
    facts: list[Fact] = []
    waits: Waits | None = None
    ends: Ends | None = None


def verdict(flight: Flight) -> Verdict:
    """What the dumps say."""
    speed = pace(flight)
    who = waits(flight)
    stops = ends(flight, who)
    verdict = _judged(flight, speed, who, stops)
    verdict.waits, verdict.ends = who, stops
    verdict.also = tuple(kind for kind in verdict.also if kind != verdict.kind)
    if speed.state == "unknown" and verdict.sure == "certain":
        verdict.sure = "likely"
    return verdict


def _judged(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict:
    stated = _said(flight, speed, who, stops)
    if stated is not None:
        return stated
    if speed.state in ("slow", "running"):
        ranks = stops.idle or stops.stuck if speed.state == "slow" else []
        return Verdict(speed.state, ranks[:1], "likely", speed)
    if not any(who.pending.values()):
        return _outside(flight, speed)
    return (
        _deviated(flight, speed, who, stops) or _unlike(flight, speed, who, stops) or _ended(flight, speed, who, stops)
    )


def _outside(flight: Flight, speed: Pace) -> Verdict:
    """No rank is in a call. Where the job stands still, ranks wait for something that no recorder sees; stacks tell, if
    few of the ranks are elsewhere than most."""
    if speed.state != "hung":
        return Verdict("running", [], "likely", speed)
    by: dict[tuple[Frame, ...], list[int]] = {}
    for stack in flight.threads:
        if stack.thread in MAIN and stack.rank in flight.ranks:
            by.setdefault(stack.frames, []).append(stack.rank)
    most = max(by.values(), key=len, default=[])
    few = sorted(rank for ranks in by.values() if ranks is not most for rank in ranks)
    if not few or len(few) * 4 > len(flight.ranks):
        raise CannotAnswer(
            f"nothing happened for {about(speed.still_ns)}, and no rank is in a call: they wait for something that the "
            "dumps do not hold (another library, a store, a file, data)",
            "take stacks of all ranks: `stepscope capture hang DIR`, with py-spy installed",
        )
    return Verdict("host-stopped", few, "likely", speed)


def _said(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict | None:
    """What a log says outright."""
    memory = [f for f in flight.facts if f.kind == "oom"]
    gone = [f for f in flight.facts if f.kind == "exit" and f.number != 0 and f.ranks]
    for kind, facts in (("out-of-memory", memory), ("crashed", gone)):
        if facts:
            ranks = sorted({rank for fact in facts for rank in fact.ranks})
            quiet = [rank for rank in ranks if rank in stops.unseen or rank in stops.idle or not who.pending.get(rank)]
            chosen = quiet or ranks or [*stops.unseen, *stops.idle]
            return Verdict(
                kind, chosen, "certain" if ranks else "likely", speed, meeting=_waited(who, chosen), facts=facts
            )
    return None


def _waited(who: Waits, ranks: list[int]) -> Meeting | None:
    """A meeting that `ranks` hold up: the one with the fewest others that are absent, too."""
    held = [meeting for meeting, absent in who.absent.items() if set(absent) & set(ranks)]
    return min(held, key=lambda m: (len(set(who.absent[m]) - set(ranks)), -len(who.came[m]), m), default=None)


def _deviated(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict | None:
    """The first deviation that is itself under way, or of a rank that others wait for or that is in such a meeting."""
    suspects = {rank for absent in who.absent.values() for rank in absent}
    suspects |= {rank for meeting in (*stops.full, *stops.loose) for rank in members_of(flight, meeting)}
    suspects |= {rank for ring in stops.rings for rank in ring}
    token = tokens(flight)
    for deviation in deviations(flight, token):
        if deviation.rank not in suspects and deviation.call not in who.meeting:
            continue
        if kept_up(flight, token, deviation):
            continue
        kind = deviation.kind if deviation.kind == "deadlock" else f"mismatch-{deviation.kind}"
        meeting = (
            who.meeting.get(deviation.call)
            or _waited(who, [deviation.rank])
            or next(iter((*stops.full, *stops.loose)), None)
        )
        also: tuple[str, ...] = ("mismatch-order",) if kind == "deadlock" else ()
        if kind == "mismatch-order" and any(deviation.rank in ring for ring in stops.rings):
            also = ("deadlock",)
        also = tuple(dict.fromkeys((*also, *deviation.also)))
        return Verdict(kind, [deviation.rank], "likely", speed, also, meeting, deviation)
    return None


def _unlike(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict | None:
    """Members of a meeting that make different calls: the fewest of them, or all where that does not say."""
    for meeting, by in mismatches(flight, [*stops.full, *stops.loose, *who.absent]).items():
        sizes = sorted(((len(ranks), signature) for signature, ranks in by.items()))
        few = sizes[0][0] * 2 <= sizes[-1][0]
        ranks = sorted(r for n, s in sizes for r in by[s] if n == sizes[0][0] or not few)
        kinds = {(flight.signatures[s].kind, flight.signatures[s].types) for s in by}
        kind = "mismatch-type" if len(kinds) > 1 else "mismatch-size"
        odd = out_of_step(flight, tokens(flight), *meeting)
        if odd is not None:
            ranks, shifted = odd
            kind = "mismatch-order" if shifted else kind
            return Verdict(kind, ranks, "likely", speed, _UNLIKE, meeting, unlike=by)
        return Verdict(kind, ranks, "likely" if few else "possible", speed, _UNLIKE, meeting, unlike=by)
    return None


def _ended(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict:
    """By where the waits end."""
    sure: Sure
    for kind, ranks in (("host-stopped", stops.idle), ("gpu-stopped", stops.stuck)):
        if ranks:
            first = min(ranks, key=lambda r: (stops.since.get(r, 0), r))
            sure = "certain" if len(ranks) == 1 and first in stops.since else "likely"
            return Verdict(kind, [first], sure, speed, (), _waited(who, [first]))
    broken = [f for f in flight.facts if f.kind == "xid" and f.ranks]
    if stops.full:
        return _full(flight, speed, who, stops, broken, stops.full)
    if stops.rings:
        ring = stops.rings[0]
        lost = any(_lost(flight, who, meeting) for rank in ring for meeting in who.in_(rank))
        sure = "possible" if lost else "likely"
        also: tuple[str, ...] = _UNLIKE if lost else ("mismatch-order",)
        return Verdict("deadlock", ring, sure, speed, also, next(iter(who.in_(ring[0])), None))
    if stops.unseen:
        return _gone(flight, speed, who, stops)
    if stops.loose:
        return _full(flight, speed, who, stops, broken, stops.loose)
    if stops.blind:  # what it is in, its ring has lost
        first = min(stops.blind, key=lambda r: (stops.since.get(r, 0), r))
        also = ("link-dead", *_UNLIKE) if flight.timed else _UNLIKE
        return Verdict("gpu-stopped", [first], "possible", speed, also, _waited(who, [first]))
    return Verdict("running", [], "possible", speed)


def _gone(flight: Flight, speed: Pace, who: Waits, stops: Ends) -> Verdict:
    """Everybody waits for a rank without a dump: it is gone, or it waits itself, or made other calls than were due, or
    only its dump is lost.

    Nothing says which. The set is that rank, those without a dump that it may wait for, and those in the call with it:
    a link among them may be dead.
    """
    # One that is missing beside a rank that waits elsewhere may wait in that call itself; so may one that a single rank
    # waits for, where others like that rank wait for ranks that wait further on.
    alone = [m for m, absent in who.absent.items() if absent and set(absent) <= set(flight.missing)]
    met = {m: len(members_of(flight, m)) - len(who.absent[m]) for m in alone}
    meeting = min(alone, key=lambda m: (-met[m], stops.held_since[m], m), default=None)
    near = stops.unseen if meeting is None else who.absent[meeting]
    first = min(near, key=lambda r: (stops.since.get(r, 0), r))
    meeting = meeting or _waited(who, [first])
    gone = {first}
    for group in flight.groups:
        if first in group.members and group.purpose != DEFAULT_GROUP:
            gone |= set(group.members) & set(flight.missing)
    members = {rank for m in alone if first in who.absent[m] for rank in members_of(flight, m)}
    others = sorted((gone | members) - {first})
    sure: Sure = "possible" if others else "likely"
    also = ("host-stopped", "gpu-stopped", "link-dead", *_UNLIKE)
    return Verdict("crashed", [first, *others], sure, speed, also, meeting)


def _full(flight: Flight, speed: Pace, who: Waits, stops: Ends, broken: list[Fact], full: list[Meeting]) -> Verdict:
    meeting = min(full, key=lambda m: (stops.since.get(m, 0), m))
    members = list(members_of(flight, meeting))
    named = [f for f in broken if set(f.ranks) & set(members)]
    if named:
        kind = "link-dead" if named[0].number in _LINK_XIDS else "gpu-stopped"
        return Verdict(kind, sorted(set(named[0].ranks)), "certain", speed, (), meeting, facts=named)
    silent = sorted({r for f in flight.facts if f.kind == "silent" for r in f.ranks if r in members})
    if silent:
        return Verdict("link-dead", silent, "likely", speed, (), meeting)
    # Calls that the ring no longer holds may not have matched.
    unlike = _UNLIKE if _lost(flight, who, meeting) or meeting in stops.loose else ()
    if flight.timed:
        return Verdict("link-dead", sorted(members), "possible" if unlike else "likely", speed, unlike, meeting)
    also = ("gpu-stopped", "link-dead", *unlike)
    return Verdict("gpu-or-link", sorted(members), "possible", speed, also, meeting)


def _lost(flight: Flight, who: Waits, meeting: Meeting) -> bool:
    kinds = (flight.signatures[int(flight.calls.signature[row])].kind for row in who.came[meeting].values())
    return LOST in kinds


def known(verdict: Verdict) -> bool:
    """Whether dumps say since when the job stands still."""
    return verdict.pace.still_ns != NONE

"""The verdict in words: one sentence, what happened before, and what to record next time."""

from __future__ import annotations

import numpy as np

from stepscope.hang.places import Place, ranks_text
from stepscope.hang.verdict import NOT_HUNG, Verdict
from stepscope.model.flight import COMPLETED, NONE, Flight
from stepscope.model.units import about

#: Ranks and other kinds that a sentence lists.
_MOST, _MOST_KINDS = 24, 3
_TITLES = {
    "host-stopped": "{who} stopped on the host",
    "gpu-stopped": "{who}: the GPU stopped",
    "link-dead": "a link or peer is dead among {who}",
    "gpu-or-link": "a GPU stopped or a link is dead among {who}",
    "mismatch-order": "{who} made calls in another order than the others",
    "mismatch-size": "{who} made a call of another size than the others",
    "mismatch-type": "{who} made a call of another kind or type than the others",
    "mismatch-group": "{who} made a call to another process group than the others",
    "crashed": "{who}: the process is gone",
    "out-of-memory": "{who} ran out of memory",
    "deadlock": "process groups wait for each other in a ring through {who}",
}


def statement(flight: Flight, found: Verdict, places: list[Place]) -> str:
    """`Hung for 10 min: rank 417 stopped on the host (certain). 1,023 ranks in all_reduce at …, rank 417 …`."""
    still = found.pace.still_ns
    if found.kind in NOT_HUNG:
        since = f"; its last call or completion was {about(still)} before the dumps" if still != NONE else ""
        return f"Not hung: {'the job is slow' if found.kind == 'slow' else 'the job runs'}{since}."
    hung = f"Hung for {about(still)}" if still != NONE else "Hung"
    # Of those in a call with a rank that left no dump a link may be dead; their processes are there.
    gone = [rank for rank in found.ranks if rank in flight.missing] if found.kind == "crashed" else []
    title = _TITLES[found.kind].format(who=who_text(gone or found.ranks))
    also = _also(found.also) if found.sure != "certain" else ""
    listed = "; ".join(filter(None, (_place(place) for place in places[:3])))
    return f"{hung}: {title} ({found.sure}{also}). {listed[:1].upper()}{listed[1:]}."


def _also(kinds: tuple[str, ...]) -> str:
    more = len(kinds) - _MOST_KINDS
    listed = [*kinds[:_MOST_KINDS], *([f"{more} other kinds"] if more > 1 else kinds[_MOST_KINDS:])]
    return "".join(f" or {kind}" for kind in listed).replace(" or", ", or", 1)


def who_text(ranks: list[int]) -> str:
    if not ranks:
        return "a rank that the dumps do not name"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks_text(ranks)}" if len(ranks) <= _MOST else f"{len(ranks):,} ranks"


def _place(place: Place) -> str:
    who = who_text(place.ranks) if len(place.ranks) <= 3 else f"{len(place.ranks):,} ranks"
    verb = "is" if len(place.ranks) == 1 else "are"
    if place.state == "no dump":
        return f"{who} left no dump"
    at = f" at {place.site}" if place.site else ""
    if place.state == "idle":
        return f"{who} {verb} in no call; last known{at or f' call: {place.call}'}"
    return f"{who} {verb} in {place.call} of {place.group}{at}"


def before(flight: Flight, found: Verdict) -> list[str]:
    """What the last rounds were like."""
    sentences = []
    speed = found.pace
    if speed.round_ns > 0:
        sentences.append(
            f"a round took {about(speed.round_ns)} as a rule, and at most {about(speed.last_round_ns)} at last"
        )
    calls = flight.calls
    done = np.flatnonzero(calls.state == COMPLETED)
    if len(done):
        last = int(done[::-1][np.argmax(calls.created_ns[done[::-1]])])
        group = flight.groups[int(calls.group[last])]
        text = flight.signatures[int(calls.signature[last])].text
        sentences.append(f"the last call that was completed was {text} in {group.text}, call {int(calls.seq[last])}")
    timeouts = [f for f in flight.facts if f.kind == "timeout"]
    if timeouts:
        ranks = sorted({rank for fact in timeouts for rank in fact.ranks})
        sentences.append(f"the watchdog of {who_text(ranks)} reported a timeout: {timeouts[0].text}")
    return sentences


def advice(flight: Flight, found: Verdict) -> list[str]:
    """What would make the answer surer next time."""
    hints: list[str] = []
    if not flight.timed:
        hints.append("TORCH_NCCL_ENABLE_TIMING=1 tells calls that run from calls that are only enqueued")
    if flight.missing:
        hints.append(f"dumps of ranks {ranks_text(flight.missing[:64])}: TORCH_NCCL_DUMP_ON_TIMEOUT=1 on every rank")
    if any(dump.overflowed for dump in flight.dumps):
        hints.append("TORCH_FR_BUFFER_SIZE=20000 keeps more than the last calls")
    if not any(flight.stacks):
        hints.append("pickled dumps have the stacks of calls, JSON does not")
    if not flight.threads and found.kind in ("host-stopped", "crashed"):
        hints.append("`py-spy dump --json` of the culprit, as `stepscope capture hang` takes it, says where it is")
    return hints

"""Who is where: ranks that stand at the same call, with its line of Python, as few rows as there are places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from stepscope.hang.verdict import Verdict
from stepscope.hang.waits import Meeting, is_transfer
from stepscope.model.flight import MAIN, NONE, STATES, Flight, Frame, own_frames


class Place(msgspec.Struct):
    """Ranks at one place. `role`: `culprit`, `waits`, `idle` (no call under way) or `no dump`."""

    ranks: list[int]
    role: str
    call: str
    group: str
    seq: int
    state: str
    site: str
    frames: tuple[Frame, ...]
    #: since when the first of them waits there, on its clock
    since_ns: int


def places(flight: Flight, verdict: Verdict) -> list[Place]:
    """Every rank of the job at its place; culprits first, then by how many stand there."""
    calls, who = flight.calls, verdict.waits
    assert who is not None
    rows_at: dict[tuple[object, ...], list[int]] = defaultdict(list)
    rows: dict[tuple[object, ...], int] = {}
    guilty = set(verdict.ranks)
    spoken = {stack.rank: stack.frames for stack in flight.threads if stack.thread in MAIN}
    last = _last_calls(flight)
    for rank in range(flight.world):
        role = "culprit" if rank in guilty else "waits"
        if rank not in who.pending:
            key: tuple[object, ...] = (role, "no dump")
        else:
            pending = who.running[rank] or who.pending[rank]
            row = pending[0] if pending else last.get(rank, NONE)
            state = "idle" if not pending else STATES[int(calls.state[row])]
            key = (role, state, *_spot(flight, row), spoken.get(rank, ()) if rank in guilty or not pending else ())
            rows.setdefault(key, row)
        rows_at[key].append(rank)
    listed = [_place(flight, key, ranks, rows.get(key, NONE), spoken) for key, ranks in rows_at.items()]
    return sorted(listed, key=lambda p: (p.role != "culprit", -len(p.ranks), p.ranks))


def _last_calls(flight: Flight) -> dict[int, int]:
    ranks, from_the_end = np.unique(flight.calls.rank[::-1], return_index=True)
    return dict(zip(ranks.tolist(), (len(flight.calls) - 1 - from_the_end).tolist(), strict=True))


def _spot(flight: Flight, row: int) -> tuple[object, ...]:
    """What makes two ranks stand at the same place: the call, its purpose and its stack."""
    if row == NONE:
        return ()
    calls = flight.calls
    return (
        flight.groups[int(calls.group[row])].purpose,
        int(calls.seq[row]) if not calls.p2p[row] else NONE,
        int(calls.signature[row]) if not calls.p2p[row] else flight.signatures[int(calls.signature[row])].kind,
        int(calls.stack[row]),
    )


def _place(
    flight: Flight, key: tuple[object, ...], ranks: list[int], row: int, spoken: dict[int, tuple[Frame, ...]]
) -> Place:
    role, state = str(key[0]), str(key[1])
    if row == NONE:
        return Place(ranks, role, "", "", NONE, state, "", (), NONE)
    calls = flight.calls
    frames = flight.stacks[int(calls.stack[row])]
    stands = spoken.get(ranks[0])
    if stands and (state == "idle" or role == "culprit"):
        frames = stands
    group = flight.groups[int(calls.group[row])]
    name = group.purpose if group.purpose not in ("", "undefined") else group.name
    text = flight.signatures[int(calls.signature[row])].text
    return Place(ranks, role, text, name, int(calls.seq[row]), state, site(frames), frames, int(calls.created_ns[row]))


def site(frames: Iterable[Frame]) -> str:
    """The innermost line that is the job's own, with its file and function."""
    own = own_frames(frames)
    if not own:
        return ""
    return f"{own[0].file.rsplit('/', 1)[-1]}:{own[0].line} ({own[0].name})"


def ranks_text(ranks: Iterable[int]) -> str:
    """`0-3,8`."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], rank]
        else:
            parts.append([rank])
    return ",".join("-".join(map(str, part)) for part in parts)


def meeting_text(flight: Flight, meeting: Meeting, call: str) -> str:
    """`all_reduce of 1 Float, dp (group 3), call 41`."""
    group = flight.groups[meeting[0]]
    which = "" if is_transfer(meeting) else f", call {meeting[1]}"
    return f"{call} in {group.text}{which}"

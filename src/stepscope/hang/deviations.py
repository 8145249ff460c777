"""Calls that a rank makes otherwise than usual: than itself in earlier steps, and than the ranks that do the same
work.

Training repeats itself. After the same few calls a rank makes the same next one, in every step and on every rank of
its role. A call that only one rank ever made after what preceded it, where everybody else went on with another, is a
deviation: a call left out, two that changed places, another size, type or group. Whether it matters is for the
verdict to say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal

import msgspec
import numpy as np

from stepscope.hang.evidence import left_out, like, of_its_stage, only_once_round, out_of_step
from stepscope.hang.numbering import distinct, numbered
from stepscope.model.flight import COMPLETED, I64, LOST, Calls, Flight, Frame, Signature, own_frames
from stepscope.model.threshold import Threshold

_CONTEXT = Threshold(
    8,
    "calls",
    "must be alike for what follows to be compared",
    ("tests/hang/test_verdicts.py",),
)
_AHEAD = Threshold(
    12,
    "calls",
    "how far ahead the call that was made is looked for among those that were due",
    ("tests/hang/test_verdicts.py",),
)
_OFTEN = Threshold(
    3,
    "calls",
    "a line makes the same call so often before another is unusual",
    ("tests/hang/test_verdicts.py",),
)
_FEW = Threshold(
    25.0,
    "% of the ranks",
    "that were in the same place: more that deviate alike are the rule, not the exception",
    ("tests/hang/test_verdicts.py",),
)

Kind = Literal["order", "size", "type", "group", "deadlock"]


class Deviation(msgspec.Struct, frozen=True):
    """`call` of `rank` is what it did; `due` is a call of another rank, or of an earlier step, that shows what was
    due."""

    rank: int
    call: int
    due: int
    kind: Kind
    #: whether the call that was due was never made
    skipped: bool = False
    #: other kinds that it may be
    also: tuple[str, ...] = ()


def deviations(flight: Flight, token: I64) -> list[Deviation]:
    """Every deviation, by time; `token` numbers the calls (`numbering.tokens`)."""
    calls = flight.calls
    if len(calls) <= _CONTEXT.count:
        return []
    rows = np.flatnonzero(token >= 0)
    token, rank = token[rows], calls.rank[rows]
    run = _runs(calls)[rows]
    context = _contexts(token, run, _CONTEXT.count)
    whole = context >= 0
    if not whole.any():
        return []
    number = numbered(context[whole], token[whole])
    count = np.bincount(number)
    ranks = distinct(number, rank[whole])
    of_context = distinct(context[whole], rank[whole])
    usual = _usual(context[whole], number, count, _times(token, run)[whole])
    at = np.flatnonzero(whole)
    # Made once by each of few ranks, and not what usually follows here.
    rare = (number != usual[context[whole]]) & (count[number] == ranks[number])
    rare &= ranks[number] <= np.maximum(1, _FEW.share * of_context[context[whole]])
    # What all members of a call do together they mean to do.
    size = np.array([len(g.members) for g in flight.groups], np.int64)[calls.group[rows[at]]]
    rare &= (ranks[number] < size) | (ranks[number] == 1) | calls.p2p[rows[at]]
    example = np.zeros(len(count), np.int64)
    example[number[::-1]] = at[::-1]
    lines = _by_line(flight, rows, token)
    certain = {deviation.call for deviation in lines}
    seen: Counter[int] = Counter()
    for n in np.flatnonzero(rare).tolist():
        here, due = int(at[n]), int(example[usual[context[at[n]]]])
        beside = _beside(calls, rows, token, here, due)
        # A member that stands still shows few of the calls that would follow.
        due = beside if len(_following(token, run, beside)) == _AHEAD.count or beside == due else due
        if seen[int(rank[here])] >= _AHEAD.count or int(rows[here]) in certain:
            continue
        # A transfer that is complete was met by its other end: it was due, and perhaps something before it, too.
        met = calls.p2p[rows[here]] and calls.state[rows[here]] == COMPLETED
        if met and not left_out(flight, rows, token, here, due):
            continue
        dues = at[number == usual[context[at[n]]]]
        if not of_its_stage(flight, rows, here, dues) or only_once_round(flight, rank, here, dues):
            continue
        kind = _kind(flight, rows, token, run, here, due)
        if kind is not None:
            seen[int(rank[here])] += 1
            lines.append(Deviation(int(rank[here]), int(rows[here]), int(rows[due]), *kind))
    return sorted(lines, key=lambda d: (int(calls.created_ns[d.call]), d.rank))


def _by_line(flight: Flight, rows: I64, token: I64) -> list[Deviation]:
    """Calls under way that their line of the program has made this once, where it always makes another: to another
    group, or of another kind or type. Sizes do not say: one line reduces buckets of many sizes."""
    calls = flight.calls
    count = np.bincount(token)
    open_ = np.flatnonzero((count[token] == 1) & (calls.state[rows] != COMPLETED))
    deviations = []
    lines: dict[tuple[Frame, ...], int] = {}
    line = np.array([lines.setdefault(own_frames(frames), len(lines)) for frames in flight.stacks], np.int64)
    for here in open_.tolist():
        did = int(rows[here])
        if not flight.stacks[int(calls.stack[did])]:
            continue
        others = np.flatnonzero((line[calls.stack[rows]] == line[calls.stack[did]]) & (token != token[here]))
        kinds = np.unique(token[others])
        if len(kinds) != 1 or len(others) < _OFTEN.count:
            continue
        due = int(others[-1])
        kind = _unlike_kind(flight, did, int(rows[due]))
        if kind is not None:
            deviations.append(Deviation(int(calls.rank[did]), did, int(rows[due]), kind))
    return deviations


def _unlike_kind(flight: Flight, did: int, was: int) -> Kind | None:
    """How two calls of one line differ: in the group alone, or in what they are."""
    calls = flight.calls
    made, due = (flight.signatures[int(calls.signature[n])] for n in (did, was))
    of_made, of_due = (flight.groups[int(calls.group[n])] for n in (did, was))
    same_group = (of_made.purpose, len(of_made.members)) == (of_due.purpose, len(of_due.members))
    if not same_group:
        return "group" if made == due else None
    return "type" if (made.kind, made.types) != (due.kind, due.types) else None


def _beside(calls: Calls, rows: I64, token: I64, here: int, due: int) -> int:
    """The call that was due as another member of the same meeting made it, where one did: its role is the same."""
    row = int(rows[here])
    if calls.p2p[row]:
        return due
    same = (calls.group[rows] == calls.group[row]) & (calls.seq[rows] == calls.seq[row]) & (token == token[due])
    return int(same.argmax()) if same.any() else due


def _runs(calls: Calls) -> I64:
    """By call, the number of the run that it is in: calls of one rank without a gap. Of a long ring only the end is
    kept, and before it what is not complete."""
    breaks = (calls.rank[1:] != calls.rank[:-1]) | (calls.record[1:] != calls.record[:-1] + 1)
    return np.concatenate([[0], np.cumsum(breaks)]).astype(np.int64)


def _contexts(token: I64, run: I64, length: int) -> I64:
    """By call, a number for the calls before it; -1 where its run has too few."""
    context = np.roll(token, 1)
    for n in range(2, length + 1):
        context = numbered(context, np.roll(token, n))
    same = np.roll(run, length) == run
    same[:length] = False
    return np.where(same, context, -1)


def _times(token: I64, run: I64) -> I64:
    """By call, how often it is made after half as many calls alike, and, of equals there, how often at all."""
    short = _contexts(token, run, _CONTEXT.count // 2)
    after = numbered(short + 1, token)
    return np.asarray(np.bincount(after)[after] * len(token) + np.bincount(token)[token], np.int64)


def _usual(context: I64, number: I64, count: I64, times: I64) -> I64:
    """By context, the transition that is made most often; of equals, that to the call which is made more `times`."""
    usual = np.zeros(int(context.max()) + 1 if len(context) else 0, np.int64)
    example = np.zeros(len(count), np.int64)
    example[number] = np.arange(len(number))
    order = np.lexsort((-np.arange(len(count)), times[example], count))
    usual[context[example[order]]] = order
    return usual


def _kind(
    flight: Flight, rows: I64, token: I64, run: I64, here: int, due: int
) -> tuple[Kind, bool, tuple[str, ...]] | None:
    """What the deviation is, by what was due and what came after; None where it follows from an earlier one."""
    calls = flight.calls
    did, was = (int(rows[n]) for n in (here, due))
    ahead = _following(token, run, due)
    if due < here:  # the call itself does not show what follows
        ahead = ahead[: here - due]
    after = _following(token, run, here)
    purpose = [flight.groups[int(calls.group[n])] for n in (did, was)]
    same_group = (purpose[0].purpose, len(purpose[0].members)) == (purpose[1].purpose, len(purpose[1].members))
    made, missed = (flight.signatures[int(calls.signature[n])] for n in (did, was))
    alike = (made.kind, made.elements_in, made.elements_out, made.types) == (
        missed.kind, missed.elements_in, missed.elements_out, missed.types,
    )  # fmt: skip
    stacks = bool(flight.stacks[int(calls.stack[did])])
    lines = [own_frames(flight.stacks[int(calls.stack[n])]) for n in (did, was)]
    same_site = stacks and lines[0] == lines[1]
    # With its stack a call that is also made elsewhere is one that came at the wrong time.
    elsewhere = stacks and int((token == token[here]).sum()) > 1
    unlike_type = made.kind != missed.kind or made.types != missed.types
    unlike = "mismatch-type" if unlike_type else "mismatch-size"
    other: int | None = None
    if stacks and not elsewhere and not same_site and (other := like(flight, rows, token, here)) is not None:
        # Others make it from another branch of the same function.
        token = np.where(token == token[here], token[other], token)
        ahead, after, elsewhere = (
            _following(token, run, due)[: None if due > here else here - due], _following(token, run, here), True,
        )  # fmt: skip
    # A line may make calls of many sizes, one after the other.
    if elsewhere or (not same_site and token[here] in ahead[1:]):
        place = ahead.index(token[here], 1) if token[here] in ahead[1:] else _AHEAD.count
        if elsewhere or len(after) <= place + 1 or not _agree(after[1:], ahead[1:]):
            swapped = token[due] in after[1 : place + 3]
            # Until more calls are seen, one of another kind may look like a later one, and a swap like an omission.
            unseen = len(after) <= place + 1 and not swapped
            also = ("mismatch-type",) * (unseen and same_group and not stacks)
            also += ("deadlock",) * (unseen and not same_group)
            also += (unlike,) * (other is not None and same_group)
            return ("order" if same_group or not swapped else "deadlock"), not swapped, also
    if not same_group:
        return ("group", False, ()) if alike or same_site else None
    if calls.state[did] == COMPLETED and not calls.p2p[did]:
        return None  # all members made this very call
    if stacks and flight.stacks[int(calls.stack[was])] and not same_site and (unlike_type or made != missed):
        # A line that was not its turn.
        return "order", token[due] not in after[1:], (unlike,)
    if unlike_type:
        return "type", False, ("mismatch-order",) * (not stacks and int((token == token[here]).sum()) > 1)
    if (made.elements_in, made.elements_out) != (missed.elements_in, missed.elements_out):
        recurs = int((token == token[here]).sum()) > 1
        return ("order", True, ("mismatch-size",)) if recurs else ("size", False, ())
    return None


def _agree(one: list[int], other: list[int]) -> bool:
    """Whether calls go on alike, as far as both are known."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _following(token: I64, run: I64, at: int) -> list[int]:
    """The next calls of the same run, `at` first."""
    window = token[at : at + _AHEAD.count]
    return list(map(int, window[run[at : at + _AHEAD.count] == run[at]]))


def kept_up(flight: Flight, token: I64, deviation: Deviation) -> bool:
    """Of a call that is complete, so that all members made it: whether its rank left nothing out for it, and made none
    too many. It came as far in the group of the call that was due as other members, is in the call there that most
    are in, and did not go on a call earlier or later than they."""
    calls, rank = flight.calls, deviation.rank
    if calls.state[deviation.call] != COMPLETED or calls.p2p[[deviation.call, deviation.due]].any():
        return False
    due = flight.groups[int(calls.group[deviation.due])]
    for number, group in enumerate(flight.groups):
        if (group.purpose, len(group.members)) != (due.purpose, len(due.members)) or rank not in group.members:
            continue
        rows = np.flatnonzero((calls.group == number) & ~calls.p2p)
        own = rows[calls.rank[rows] == rank]
        if not len(own) or calls.seq[own].max() < calls.seq[rows].max():
            return False
        last = own[calls.seq[own].argmax()]
        made = calls.signature[rows[calls.seq[rows] == calls.seq[last]]]
        if calls.signature[last] != np.bincount(made).argmax():
            return False
        others = rows[calls.rank[rows] != rank]
        common = int(min(calls.seq[last], calls.seq[others].max(initial=-1)))
        odd = out_of_step(flight, token, number, common)
        if odd is not None and rank in odd[0] and odd[1]:
            return False
    return True


def mismatches(flight: Flight, meetings: list[tuple[int, ...]]) -> dict[tuple[int, ...], dict[int, list[int]]]:
    """By meeting whose members do not make the same call: by signature, the ranks with it."""
    calls = flight.calls
    mismatches: dict[tuple[int, ...], dict[int, list[int]]] = {}
    wanted = {m for m in meetings if len(m) == 2}
    for group, seq in sorted(wanted):
        rows = np.flatnonzero((calls.group == group) & (calls.seq == seq) & ~calls.p2p)
        by: dict[int, list[int]] = defaultdict(list)
        for row in rows.tolist():
            if flight.signatures[int(calls.signature[row])].kind != LOST:
                by[int(calls.signature[row])].append(int(calls.rank[row]))
        if len(by) > 1 and _unlike([flight.signatures[s] for s in by]):
            mismatches[group, seq] = dict(by)
    return mismatches


def _unlike(signatures: list[Signature]) -> bool:
    """Whether calls cannot belong together. Sizes of all-to-all, and of calls with a root, may differ."""
    first = signatures[0]
    for other in signatures[1:]:
        if other.kind != first.kind or other.types != first.types:
            return True
        sized = first.kind.startswith(
            ("all_reduce", "_all_gather", "_reduce_scatter", "allreduce", "barrier", "all_gather_into")
        )
        if sized and (other.elements_in, other.elements_out) != (first.elements_in, first.elements_out):
            return True
    return False

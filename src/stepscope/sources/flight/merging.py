"""The dumps of all ranks as one table: groups, signatures and stacks get numbers that all ranks share.

A process group is its name and its members: split groups may share a name. Where dumps do not list members (Gloo),
they are the ranks that called the group; the default group is everybody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.model.flight import (
    COALESCED,
    COMPLETED,
    DEFAULT_GROUP,
    I64,
    LOST,
    NONE,
    SCHEDULED,
    STARTED,
    Calls,
    Dump,
    Flight,
    Frame,
    Group,
    Signature,
    empty_calls,
)
from stepscope.sources.flight.reading import Read, Spans, ranks_of, spans_of


class Found:
    """One dump with its rank and its file; `written_ns` is when the file was last changed, or what a manifest says."""

    __slots__ = ("dated", "path", "rank", "read", "written_ns")

    def __init__(self, rank: int, path: str, read: Read, written_ns: int, dated: str) -> None:
        self.rank, self.path, self.read, self.written_ns, self.dated = rank, path, read, written_ns, dated


def merged(found: list[Found]) -> Flight:
    """All dumps, by rank."""
    found = sorted(found, key=lambda f: f.rank)
    world = _world(found)
    groups = _Groups(found, world)
    signatures: dict[Signature, int] = {}
    stacks: dict[tuple[Frame, ...], int] = {}
    columns: list[dict[str, I64]] = []
    dumps: list[Dump] = []
    for one in found:
        own = groups.numbers(one)
        signature = np.array([signatures.setdefault(s, len(signatures)) for s in one.read.signatures], np.int64)
        stack = np.array([stacks.setdefault(s, len(stacks)) for s in one.read.stacks], np.int64)
        c = one.read.columns
        columns.append(
            {**c, "group": own[c["group"]], "signature": signature[c["signature"]], "stack": stack[c["stack"]]}
        )
        dumps.append(_dump(one, own))
        lost = signatures.setdefault(Signature(LOST), len(signatures)), stacks.setdefault((), len(stacks))
        columns[-1] = _with_lost(columns[-1], dumps[-1], *lost)
        columns[-1]["rank"] = np.full(len(columns[-1]["group"]), one.rank)
        if len(dumps) > 1 and dumps[-2].rank == one.rank:
            columns[-2:] = [_both(columns[-2:], dumps[-2:])]
            dumps[-2:] = [_one(*dumps[-2:])]
    calls = _calls(columns, list(signatures)) if columns else empty_calls()
    return Flight(dumps, calls, groups.listed, list(signatures), list(stacks), world)


def _world(found: list[Found]) -> int:
    listed = {spans for one in found for spans in one.read.members.values()}
    members = [max(ranks_of(spans)) for spans in listed]
    return 1 + max([*members, *(one.rank for one in found)], default=-1)


class _Groups:
    """Groups by name and members."""

    def __init__(self, found: list[Found], world: int) -> None:
        self.listed: list[Group] = []
        self._at: dict[tuple[str, Spans], int] = {}
        self._world = world
        callers: dict[tuple[str, str], set[int]] = {}
        lists: dict[str, set[Spans]] = {}
        for one in found:
            for key in one.read.groups:
                callers.setdefault(key, set()).add(one.rank)
            for name, spans in one.read.members.items():
                lists.setdefault(name, set()).add(spans)
        self._callers = {key: spans_of(tuple(map(str, sorted(ranks)))) for key, ranks in callers.items()}
        #: the only list of members that any dump gives for a name
        self._only = {name: next(iter(spans)) for name, spans in lists.items() if len(spans) == 1 and name}

    def numbers(self, one: Found) -> I64:
        """By its own number of a group, the shared one."""
        return np.array([self._number(one, name, purpose) for name, purpose in one.read.groups], np.int64)

    def _number(self, one: Found, name: str, purpose: str) -> int:
        members = one.read.members.get(name) or self._only.get(name)
        declared = members is not None
        if members is None:
            members = ((0, 1, self._world),) if purpose == DEFAULT_GROUP else self._callers[name, purpose]
            declared = purpose == DEFAULT_GROUP
        key = (name, members)
        if key not in self._at:
            self._at[key] = len(self.listed)
            self.listed.append(Group(name, purpose, ranks_of(members), declared))
        return self._at[key]


def _dump(one: Found, own: I64) -> Dump:
    c = one.read.columns
    open_ = c["state"] != COMPLETED
    # Events of calls that hang are asked last when the dump is written: their start was discovered then.
    seen = c["time_discovered_started_ns"][open_]
    recorded = int(seen.max()) if len(seen) and seen.max() > 0 else NONE
    dumped, dated = (
        (one.written_ns, one.dated) if one.dated == "manifest" or recorded == NONE else (recorded, "recorded")
    )
    status = {}
    for n, group in enumerate(own.tolist()):
        numbers = c["pg_id"][c["group"] == n]
        if len(numbers) and (known := one.read.status.get(str(int(numbers[-1])))):
            status[group] = known
    first = int(c["record_id"][0]) if len(c["record_id"]) else 0
    overflowed = first - (one.read.count - len(c["record_id"])) > 0
    return Dump(one.rank, one.path, one.read.version, dumped, dated, overflowed, status)


def _both(columns: list[dict[str, I64]], dumps: list[Dump]) -> dict[str, I64]:
    """The calls of two recorders of a rank in the order in which they were made. Where one of them may lack a call,
    numbers of records have a gap."""
    times = [column["time_created_ns"] for column in columns]
    begins = [
        int(t[t != NONE].min()) for t, dump in zip(times, dumps, strict=True) if dump.overflowed and (t != NONE).any()
    ]
    gaps = [np.diff(column["record_id"], prepend=NONE) != 1 for column in columns]
    order = np.argsort(np.concatenate(times), kind="stable")
    gap = np.concatenate(gaps)[order] | (np.concatenate(times)[order] <= max(begins, default=NONE))
    both = {key: np.concatenate([column[key] for column in columns])[order] for key in columns[0]}
    return {**both, "record_id": np.cumsum(1 + gap)}


def _one(first: Dump, second: Dump) -> Dump:
    """What is known of a rank by both its dumps."""
    dated = first if first.dated == "recorded" or second.dated != "recorded" else second
    return Dump(
        first.rank, dated.path, dated.version, dated.dumped_ns, dated.dated, first.overflowed or second.overflowed,
        {**first.status, **second.status},
    )  # fmt: skip


def _with_lost(columns: dict[str, I64], dump: Dump, signature: int, stack: int) -> dict[str, I64]:
    """The calls of a rank, and before them the first call under way of each group whose ring no longer holds it."""
    if not dump.overflowed:
        return columns
    collective = ~columns["p2p"].astype(np.bool_)
    added = []
    for group, (enqueued, started, completed) in sorted(dump.status.items()):
        held = columns["collective_seq_id"][collective & (columns["group"] == group)]
        first = int(held.min()) if len(held) else enqueued + 1
        if NONE < completed + 1 < first and enqueued > completed:
            state = STARTED if started > completed else SCHEDULED
            added.append((group, completed + 1, state))
    if not added:
        return columns
    groups, sequence, states = (np.array(values, np.int64) for values in zip(*added, strict=True))
    recorded = {"group": groups, "collective_seq_id": sequence, "state": states}
    recorded |= {"signature": np.full(len(added), signature), "stack": np.full(len(added), stack)}
    recorded["p2p"] = recorded["hosted"] = np.zeros(len(added), np.int64)
    nothing = np.full(len(added), NONE)
    return {key: np.concatenate([recorded.get(key, nothing), column]) for key, column in columns.items()}


def _calls(columns: list[dict[str, I64]], signatures: list[Signature]) -> Calls:
    # A column of a dump is dropped when that of all is there.
    every: dict[str, Any] = {key: np.concatenate([c.pop(key) for c in columns]) for key in list(columns[0])}
    p2p = every["p2p"].astype(np.bool_)
    calls = Calls(
        rank=every["rank"],
        record=every["record_id"],
        group=every["group"],
        signature=every["signature"],
        stack=every["stack"],
        seq=np.where(p2p, every["p2p_seq_id"], every["collective_seq_id"]),
        p2p=p2p,
        hosted=every["hosted"].astype(np.bool_),
        state=every["state"],
        created_ns=every["time_created_ns"],
        started_ns=every["time_discovered_started_ns"],
        completed_ns=every["time_discovered_completed_ns"],
        timeout_ms=every["timeout_ms"],
    )
    _close(calls, signatures)
    return calls


def _close(calls: Calls, signatures: list[Signature]) -> None:
    """Calls of a batch have no events of their own: they are as far as the call that closes the batch."""
    kinds = np.array([s.kind == COALESCED for s in signatures] or [False], np.bool_)
    closing = np.flatnonzero(kinds[calls.signature])
    if not len(closing):
        return
    order = np.lexsort((np.arange(len(calls)), calls.seq, calls.p2p, calls.group, calls.rank))
    key = np.stack([calls.rank, calls.group, calls.p2p, calls.seq])[:, order]
    batch = np.empty(len(calls), np.int64)
    batch[order] = np.concatenate([[0], (key[:, 1:] != key[:, :-1]).any(0).cumsum()])
    closed = np.full(int(batch.max()) + 1, NONE)
    closed[batch[closing]] = closing
    by = closed[batch]
    inside = by != NONE
    for column in (calls.state, calls.started_ns, calls.completed_ns):
        column[inside] = column[by[inside]]

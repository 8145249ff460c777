"""The blocks of one device over a recording: when each was given out and taken back, and what was reserved meanwhile.

A moment is the number of an event: block b is alive after event e where `begin <= e < end`. What was allocated before
recording began has `begin` NONE: known from the segments at the end, where it is still alive, or from its own release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.intervals.arrays import I64, NONE, Mask
from stepscope.model.profile import Profile

#: The allocator gives out multiples of this.
ROUND = 512


@dataclass(frozen=True)
class Blocks:
    """Blocks, in the order in which they were given out; those from before the recording first."""

    begin: I64
    end: I64
    address: I64
    requested: I64
    size: I64
    chain: I64

    def alive(self, moment: int) -> Mask:
        """Those that are alive after the event `moment`."""
        return (self.begin <= moment) & (self.end > moment)


@dataclass(frozen=True)
class Segments:
    """Segments that the allocator had of CUDA, likewise. Expandable ones are the ranges that were mapped."""

    begin: I64
    end: I64
    address: I64
    size: I64


@dataclass(frozen=True)
class History:
    """What one device's allocator did. Arrays are by event."""

    rank: int
    device: int
    time: I64 | None  # ns; None where the recording has no times
    action: pl.Series
    size: I64
    chain: I64
    tid: I64
    blocks: Blocks
    segments: Segments | None  # None: the recording does not say (Kineto)
    expandable: bool
    #: bytes that the allocator had of CUDA, after each event; the one before the first event comes first
    reserved: I64
    #: bytes of blocks given out, likewise
    allocated: I64
    #: given out before the recording to blocks that it does not name (Kineto)
    unnamed: int
    oom: I64
    free_bytes: I64

    @property
    def events(self) -> int:
        return len(self.size)

    def peak(self) -> int:
        """The moment at which most was given out, the first of them; NONE where that is before the first event."""
        return int(np.argmax(self.allocated)) - 1


def histories(profile: Profile) -> list[History]:
    """Every rank's devices, in order."""
    return profile.once(_histories)


def _histories(profile: Profile) -> list[History]:
    blocks = dict(profile.by_rank("blocks"))
    histories = []
    for rank, events in profile.by_rank("allocations"):
        held = blocks[rank]
        for device in sorted({*events["device"].to_list(), *held["device"].to_list()}):
            mine = events.filter(pl.col("device") == device)
            sampled = mine["reserved_bytes"].count() > 0  # by Kineto, which has totals instead of segments
            histories.append(_history(rank, device, mine, None if sampled else held.filter(pl.col("device") == device)))
    return histories


def _history(rank: int, device: int, events: pl.DataFrame, held: pl.DataFrame | None) -> History:
    n = events.height
    action, size = events["action"], _filled(events["bytes"], 0)
    address, chain = _filled(events["address"], NONE), _filled(events["chain"], NONE)
    given, taken = _rows(action, "alloc"), _rows(action, "free")
    begin, end, at = _paired(address, given, taken, n)
    exact = held is None  # Kineto's samples have the sizes of blocks
    requested = size[at]
    block = Blocks(
        begin, end, address[at], requested, requested if exact else _rounded(requested), chain[np.maximum(at, 0)]
    )
    segments, expandable = None, False
    if held is not None:
        block = _with_held(block, held, n)
        segments, expandable = _segments(events, held, n)
        reserved = _reserved(segments, n)
    else:
        total = _filled(events["reserved_bytes"].fill_null(strategy="forward").fill_null(strategy="backward"), 0)
        reserved = np.r_[total[:1], total] if n else np.zeros(1, dtype=np.int64)
    order = np.argsort(block.begin, kind="stable")
    block = Blocks(*(getattr(block, f)[order] for f in Blocks.__dataclass_fields__))
    allocated = over_time(block.begin, block.end, block.size, n)
    unnamed = 0
    if exact and n and (said := events["allocated_bytes"]).count():
        first = int(said.is_not_null().arg_max() or 0)
        unnamed = max(0, int(said[first]) - int(allocated[first + 1]))
    times = events["start_ns"].fill_null(strategy="forward").fill_null(strategy="backward")
    return History(
        rank, device, None if times.null_count() else times.to_numpy(), action, size, chain,
        _filled(events["tid"], NONE),
        block, segments, expandable, reserved, allocated + unnamed, unnamed,
        np.flatnonzero(_rows(action, "oom")), _filled(events["free_bytes"], NONE),
    )  # fmt: skip


def over_time(begin: I64, end: I64, size: I64, events: int) -> I64:
    """The sum of `size` of what is alive: before the first event, and after each."""
    change = np.zeros(events + 2, dtype=np.int64)
    np.add.at(change, begin + 1, size)
    np.add.at(change, np.minimum(end, events) + 1, -size)
    total: I64 = np.cumsum(change)[: events + 1]
    return total


def _paired(address: I64, given: Mask, taken: Mask, events: int) -> tuple[I64, I64, I64]:
    """Begin, end and a naming event of everything that comes and goes at an address.

    In order of address and time, a release ends what was given out just before it. A release without that is of what
    was there before the recording; what is given out again without a release ended then.
    """
    rows = np.flatnonzero(given | taken)
    order = rows[np.argsort(address[rows], kind="stable")]
    place, gives = address[order], given[order]
    follows = np.r_[False, place[1:] == place[:-1]] if len(order) else np.zeros(0, dtype=bool)
    after = np.r_[order[1:], events] if len(order) else order
    followed = np.r_[follows[1:], False] if len(order) else follows
    end = np.where(followed, after, events)[gives]
    early = ~gives & ~(follows & np.r_[False, gives[:-1]]) if len(order) else gives
    begin = np.r_[order[gives], np.full(int(early.sum()), NONE)]
    return begin, np.r_[end, order[early]], np.r_[order[gives], order[early]]


def _with_held(blocks: Blocks, held: pl.DataFrame, events: int) -> Blocks:
    """With the true sizes of what is alive at the end, and what is alive there without an event."""
    held = held.filter(pl.col("state") != "free")
    address, size = held["address"].to_numpy(), _filled(held["bytes"], 0)
    asked = np.where(held["requested_bytes"].is_null(), size, _filled(held["requested_bytes"], 0))
    alive = np.flatnonzero(blocks.end == events)
    order = np.argsort(address, kind="stable")
    at = np.searchsorted(address[order], blocks.address[alive])
    there = at < len(address)
    there[there] = address[order][at[there]] == blocks.address[alive][there]
    match = order[at[there]]
    sizes = blocks.size.copy()
    sizes[alive[there]] = size[match]
    before = np.ones(len(address), dtype=bool)
    before[match] = False
    n = int(before.sum())
    return Blocks(
        np.r_[blocks.begin, np.full(n, NONE)],
        np.r_[blocks.end, np.full(n, events)],
        np.r_[blocks.address, address[before]],
        np.r_[blocks.requested, asked[before]],
        np.r_[sizes, size[before]],
        np.r_[blocks.chain, _filled(held["chain"], NONE)[before]],
    )


def _segments(events: pl.DataFrame, held: pl.DataFrame, n: int) -> tuple[Segments, bool]:
    """Segments over time: those at the end, without what came later, with what went."""
    action = events["action"]
    address, size = _filled(events["address"], NONE), _filled(events["bytes"], 0)
    last = held.unique("segment", maintain_order=True)
    mapped = _rows(action, "segment_map", "segment_unmap")
    expandable = bool(last["expandable"].any() or mapped.any())
    begin, end, at = _paired(address, _rows(action, "segment_alloc"), _rows(action, "segment_free"), n)
    fixed = last.filter(~pl.col("expandable"))
    known = pl.Series(address[at][end == n])
    before = fixed.filter(~pl.col("segment").is_in(known.implode()))
    extra = before.height
    segments = Segments(
        np.r_[begin, np.full(extra, NONE)],
        np.r_[end, np.full(extra, n)],
        np.r_[address[at], before["segment"].to_numpy()],
        np.r_[size[at], before["segment_bytes"].to_numpy()],
    )
    return (_with_mapped(segments, events, last, n) if expandable else segments), expandable


def _with_mapped(segments: Segments, events: pl.DataFrame, last: pl.DataFrame, n: int) -> Segments:
    """With ranges of expandable segments: mapped and unmapped by pages, so cut at every border that ever was."""
    action = events["action"]
    up, down = np.flatnonzero(_rows(action, "segment_map")), np.flatnonzero(_rows(action, "segment_unmap"))
    address, size = _filled(events["address"], NONE), _filled(events["bytes"], 0)
    final = last.filter(pl.col("expandable"))
    first, length = final["segment"].to_numpy(), final["segment_bytes"].to_numpy()
    rows = np.r_[up, down]
    border = np.unique(np.r_[first, first + length, address[rows], address[rows] + size[rows]])
    pieces = np.diff(border)

    def touched(start: I64, stop: I64) -> tuple[I64, I64]:
        """Which range, and which piece of it: every piece of every range."""
        low, high = np.searchsorted(border, start), np.searchsorted(border, stop)
        count = high - low
        owner = np.repeat(np.arange(len(start)), count)
        return owner, np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + low[owner]

    who, piece = touched(address[rows], address[rows] + size[rows])
    event = rows[who]
    order = np.argsort(event, kind="stable")  # a piece comes and goes as a block of its own address does
    event, piece = event[order], piece[order]
    gives = np.zeros(n, dtype=bool)
    gives[up] = True
    begin, end, at = _paired(piece, gives[event], ~gives[event], len(event))
    begin, end = _as_events(begin, event, n), _as_events(end, event, n)
    ends = touched(first, first + length)[1]
    before = np.setdiff1d(ends, piece[at][end == n])
    return Segments(
        np.r_[segments.begin, begin, np.full(len(before), NONE)],
        np.r_[segments.end, end, np.full(len(before), n)],
        np.r_[segments.address, border[piece[at]], border[before]],
        np.r_[segments.size, pieces[piece[at]], pieces[before]],
    )


def _as_events(rows: I64, event: I64, events: int) -> I64:
    """Rows of a list of events as these events: NONE stays, and the end of the list is the end of the recording."""
    padded = np.r_[event, events]
    return np.where(rows == NONE, NONE, padded[np.where(rows == NONE, 0, rows)])


def _reserved(segments: Segments, events: int) -> I64:
    return over_time(segments.begin, segments.end, segments.size, events)


def _rounded(size: I64) -> I64:
    return (np.maximum(size, 1) + ROUND - 1) // ROUND * ROUND


def _rows(action: pl.Series, *actions: str) -> Mask:
    rows: Mask = action.is_in(list(actions)).to_numpy()
    return rows


def _filled(column: pl.Series, value: int) -> I64:
    return column.cast(pl.Int64).fill_null(value).to_numpy()

"""What streams are for: which of them compute, and which carry communication (semantics §2).

A stream carries communication where its kernels are communication, apart from helpers: the layout and copy kernels of a
communication library, by their names, and few and short others (a cast before what is sent).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.derive.rank.data import COMM, COMPUTE, COPY, RankData
from stepscope.intervals.arrays import I64, Mask, in_order, numbered
from stepscope.model.threshold import Threshold

OTHER_KERNELS = Threshold(
    10,
    "kernels to each that does not communicate",
    "a stream with so many is one of communication: NCCL launches a few kernels of its own beside",
    ("tests/derive/rank/test_streams.py",),
)
OTHER_TIME = Threshold(
    100,
    "times the time of those",
    "and it is busy for so long: what they take is next to nothing",
    ("tests/derive/rank/test_streams.py",),
)

#: Older traces round to whole microseconds.
ROUNDING_NS = 1000

ROLES = (COMPUTE, COMM, COPY)


@dataclass(frozen=True)
class Streams:
    """The streams of one rank, in order of device and id."""

    device: I64
    stream: I64
    of: I64  # the stream of each op of the rank

    def counts(self, data: RankData, ops: I64) -> I64:
        """How many of these ops each stream has, by role."""
        cells = self.of[ops] * len(ROLES) + data.role[ops]
        return np.bincount(cells, minlength=len(self.stream) * len(ROLES)).reshape(-1, len(ROLES))

    def computes(self, data: RankData, ops: I64) -> Mask:
        """Streams that compute, judged by these ops: more than helpers of their communication."""
        counts = self.counts(data, ops)
        computes: Mask = counts[:, COMPUTE] > 0
        both = computes & (counts[:, COMM] > 0)
        if not both.any():
            return computes
        kernels = ops[both[self.of[ops]] & (data.role[ops] != COPY)]
        other = kernels[data.role[kernels] == COMPUTE]
        other = other[~_helpers(data, other)]
        n, n_other = (np.bincount(self.of[rows], minlength=len(self.stream)) for rows in (kernels, other))
        few: Mask = both & (n_other * OTHER_KERNELS.count <= n)
        if not few.any():  # then nothing depends on how long they take
            return computes
        length = data.end - data.start
        ns, other_ns = (np.bincount(self.of[rows], length[rows], len(self.stream)) for rows in (kernels, other))
        return computes & ~(few & (other_ns * OTHER_TIME.count <= ns))


def streams_of(data: RankData) -> Streams:
    """The streams of the rank: ids are of one device, and two devices may have the same."""
    return data.once(_streams)


def in_order_with_compute(data: RankData, ops: I64) -> Mask:
    """Of these ops, those on a stream that computes, as these ops have it."""
    streams = streams_of(data)
    mask: Mask = streams.computes(data, ops)[streams.of[ops]]
    return mask


def overlapping(data: RankData) -> tuple[I64, I64]:
    """Ops that begin before another launch of their stream has ended, and by how much; rounding is not counted."""
    streams = streams_of(data)
    order = in_order(streams.of, data.start)
    early = np.zeros(len(order), dtype=np.int64)
    of, start, end = streams.of[order], data.start[order], data.end[order]
    launch = data.ops["correlation"].fill_null(0).to_numpy()[order]
    other = (of[1:] == of[:-1]) & (launch[1:] != launch[:-1]) & (launch[1:] != 0) & (launch[:-1] != 0)
    early[1:] = np.where(other, np.minimum(end[:-1], end[1:]) - start[1:], 0)
    overlapping = early > ROUNDING_NS
    return order[overlapping], early[overlapping]


def _streams(data: RankData) -> Streams:
    devices, device = numbered(data.ops["device"].to_numpy())
    ids, stream = numbered(data.stream)
    keys, of = numbered(device * len(ids) + stream)
    return Streams(devices[keys // max(len(ids), 1)], ids[keys % max(len(ids), 1)], of)


def _helpers(data: RankData, ops: I64) -> Mask:
    """Which of these compute kernels go with communication, by name."""
    named: Mask = data.profile.per_name(data.profile.taxonomy.is_helper).to_numpy()[data.name[ops]]
    return named

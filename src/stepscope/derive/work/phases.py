"""The pass of each GPU op: forward, backward, recomputed, optimizer.

What says most decides: torch ops (a backward node around the launch, autograd's sequence numbers, `Optimizer.step`),
then what was noted of a graph's nodes, ranges that name a pass, then the thread (autograd runs backward on threads of
its own), then names and order. A sequence of the forward pass that runs again in the backward pass, with the same names
and grids and with products in it, is recomputed.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from stepscope.derive.pytorch.annotations import noted_at_capture
from stepscope.derive.rank.data import RankData
from stepscope.derive.rank.graphs import graph_launch
from stepscope.derive.work.launches import launching
from stepscope.derive.work.roles import Kernels, kernels
from stepscope.derive.work.rules import MULTIPLYING, Role
from stepscope.derive.work.sizes import launches
from stepscope.intervals.arrays import I64, NONE, Mask, one_of
from stepscope.model.threshold import Threshold

PHASES = ("other", "forward", "backward", "recomputed", "optimizer")
OTHER, FORWARD, BACKWARD, AGAIN, OPTIMIZER = range(len(PHASES))
#: What the pass of an op is known by.
HOW = ("nothing", "names", "threads", "ranges", "torch ops")
NOTHING, NAMES, THREADS, RANGES, TORCH = range(len(HOW))

#: Ranges that say which pass runs; one that says two says nothing.
PASS_RANGES = {
    FORWARD: r"(?i)\b(forward|fwd)\b|stage\d_f\b",
    BACKWARD: r"(?i)\b(backward|bwd)\b|stage\d_[bw]\b",
    OPTIMIZER: r"(?i)\boptim(izer)?\b|^Optimizer\.step#",
}
_RUN = Threshold(
    6,
    "kernels in a row",
    "so many are not a coincidence; five are: grouped products of experts have one name in both passes",
    ("tests/derive/work/test_phases.py",),
)
_AT_LEAST = Threshold(
    1.5,
    "products of the backward pass",
    "for each that runs again: two without, one where all is recomputed",
    ("tests/derive/work/test_phases.py",),
)
I8 = np.ndarray[tuple[int], np.dtype[np.int8]]


class Phases(Struct, frozen=True):
    """By row of the ops that were asked about: codes of PHASES, and of HOW that is known."""

    phase: I8
    how: I8

    def are(self, *phases: int) -> Mask:
        mask: Mask = one_of(self.phase, phases)
        return mask


def in_order(data: RankData, ops: I64) -> I64:
    """Places of these ops in the order of their launches."""
    order: I64 = np.lexsort((data.start[ops], data.launched_at[ops]))
    return order


def phases(data: RankData, ops: I64, known: Kernels | None = None) -> Phases:
    """The pass of each op of a window. `ops` are of one window: what runs again is looked for among them."""
    kinds = known or kernels(data, ops)
    phase_of, how = np.zeros(len(ops), np.int8), np.zeros(len(ops), np.int8)
    for method, code in ((_by_torch, TORCH), (_by_notes, RANGES), (_by_ranges, RANGES), (_by_threads, THREADS)):
        open_ = np.flatnonzero(phase_of == OTHER)
        if len(open_):
            passes = method(data, ops[open_])
            phase_of[open_] = passes
            how[open_[passes != OTHER]] = code
    order = in_order(data, ops)
    phase_of, how = _completed(kinds, order, phase_of, how)
    again = _run_again(
        data, ops, kinds, order, np.where((phase_of == BACKWARD) & (how <= NAMES), OTHER, phase_of).astype(np.int8)
    )
    phase_of[again] = AGAIN
    return Phases(phase_of, how)


def _by_torch(data: RankData, ops: I64) -> I8:
    """Inside a backward node, or in a forward op that recorded gradients. Replayed graphs have no ops of their own."""
    launched = launching(data)
    rows = launched.op[ops]
    phase_of = np.zeros(len(ops), np.int8)
    there = (rows != NONE) & ~graph_launch(data)[ops]
    if not there.any() or not launched.torch.backward.any():
        return phase_of
    at = rows[there]
    backward, again = launched.torch.backward[at], launched.torch.again[at]
    phase_of[there] = np.where(backward, np.where(again, AGAIN, BACKWARD), OTHER)
    return phase_of


def _by_notes(data: RankData, ops: I64) -> I8:
    """As the program marked the nodes of its graphs when it captured them: backward is said, forward is not."""
    phase_of = np.zeros(len(ops), np.int8)
    noted = noted_at_capture(data)
    if noted is None:
        return phase_of
    kinds = kernels(data, ops)
    marked = noted["module"].is_not_null().to_numpy()[ops]
    backward = (noted["phase"] == "backward").fill_null(False).to_numpy()[ops]
    phase_of[marked & ~kinds.backward & ~kinds.are(Role.OPTIMIZER)] = FORWARD
    phase_of[backward] = BACKWARD
    return phase_of


def _by_ranges(data: RankData, ops: I64) -> I8:
    phase_of = np.zeros(len(ops), np.int8)
    if data.ranges.height == 0:
        return phase_of
    named = {phase: data.own_ranges_named(pattern) for phase, pattern in PASS_RANGES.items()}
    alone: Mask = np.sum(list(named.values()), axis=0) == 1
    deepest = data.ancestors_until(data.enclosing(ops), alone)
    hit = deepest != NONE
    for phase, mask in named.items():
        phase_of[hit] = np.where(mask[deepest[hit]], phase, phase_of[hit])
    return phase_of


def _by_threads(data: RankData, ops: I64) -> I8:
    """Launches of a thread that is not the one that launches first, and whose kernels say `backward`: autograd's."""
    phase_of = np.zeros(len(ops), np.int8)
    linked = data.launch[ops] != NONE
    if not linked.any():
        return phase_of
    tid = np.full(len(ops), NONE, np.int64)
    tid[linked] = data.calls["tid"].cast(pl.Int64).to_numpy()[data.launch[ops[linked]]]
    if (tid == NONE).all():  # calls of no thread
        return phase_of
    kinds = kernels(data, ops)
    threads = [t for t in np.unique(tid[linked]).tolist() if (kinds.backward & (tid == t)).any()]
    main = _main_thread(tid, kinds)
    engines = [t for t in threads if t != main]
    if engines:
        phase_of[np.isin(tid, engines)] = BACKWARD
        others = linked & ~np.isin(tid, engines) & ~kinds.are(Role.OPTIMIZER)
        phase_of[others & kinds.are(*MULTIPLYING, Role.NORM, Role.SOFTMAX, Role.EMBEDDING)] = FORWARD
    phase_of[kinds.are(Role.OPTIMIZER)] = OPTIMIZER
    return phase_of


def _main_thread(tid: I64, kinds: Kernels) -> int:
    """The thread of the forward pass: the one that steps the optimizer, else that of fewest kernels named backward."""
    launched = tid != NONE
    stepping = tid[launched & kinds.are(Role.OPTIMIZER)]
    if len(stepping):
        values, counts = np.unique(stepping, return_counts=True)
        return int(values[counts.argmax()])
    values, where = np.unique(tid[launched], return_inverse=True)
    share = np.bincount(where, weights=kinds.backward[launched]) / np.bincount(where)
    return int(values[share.argmin()])


def _completed(kinds: Kernels, order: I64, phase_of: I8, how: I8) -> tuple[I8, I8]:
    """What nothing has told: by names, and else as the op launched before it (`order`)."""
    anchor = phase_of[order].copy()
    silent = anchor == OTHER
    by_name = np.where(
        kinds.are(Role.OPTIMIZER),
        OPTIMIZER,
        np.where(
            kinds.backward,
            BACKWARD,
            np.where(kinds.are(Role.ATTENTION, Role.NORM, Role.SOFTMAX, Role.LOSS, Role.EMBEDDING), FORWARD, OTHER),
        ),
    ).astype(np.int8)[order]
    anchor = np.where(silent, by_name, anchor)
    last = np.maximum.accumulate(np.where(anchor != OTHER, np.arange(len(anchor)), -1))
    first = anchor[np.flatnonzero(anchor != OTHER)[:1]]
    filled = np.where(last >= 0, anchor[np.maximum(last, 0)], first[0] if len(first) else OTHER)
    compute = ~kinds.are(Role.COMMUNICATION)[order]
    filled = np.where(silent & ~compute, OTHER, filled)
    whole, source = phase_of.copy(), how.copy()
    whole[order] = np.where(silent, filled, phase_of[order])
    source[order] = np.where(silent & (filled != OTHER), NAMES, how[order])
    return whole, source


def _run_again(data: RankData, ops: I64, kinds: Kernels, order: I64, found: I8) -> Mask:
    """Kernels of the backward pass in a run that the forward pass has too: names and grids, and a product among them.

    Runs of `_RUN` kernels are compared by a hash of their symbols, for all at once.
    """
    kernel = data.is_kernel[ops][order] & ~kinds.are(Role.COMMUNICATION)[order]
    order = order[kernel]
    forward, backward = order[found[order] == FORWARD], order[found[order] == BACKWARD]
    # Nothing but its own backward pass needs fused attention's forward pass there: compilers leave that kernel as it
    # is, where they fuse all around it in another way.
    again: Mask = kinds.are(Role.ATTENTION) & ~kinds.backward & (found == BACKWARD) & bool(len(forward))
    if len(forward) < _RUN.count or len(backward) < _RUN.count:
        return again
    symbols = symbols_of(data, ops)
    seen = pl.Series(_hashes(symbols[backward])).is_in(pl.Series(_hashes(symbols[forward])).implode()).to_numpy()
    starts = np.flatnonzero(seen & _changing(symbols[backward]))
    covered = np.zeros(len(backward) + 1, np.int64)
    np.add.at(covered, starts, 1)
    np.add.at(covered, starts + _RUN.count, -1)
    inside = np.cumsum(covered[:-1]) > 0
    runs = np.cumsum(np.r_[inside[:1], inside[1:] & ~inside[:-1]]) * inside
    multiplying = kinds.are(*MULTIPLYING)[backward] & kinds.matrix[backward]
    whole = np.unique(runs[multiplying & ~kinds.backward[backward] & inside])
    again[backward[inside & np.isin(runs, whole) & ~kinds.backward[backward]]] = True
    # A layer has twice as many products backward as forward: without these, backward is only like forward.
    if (multiplying & ~again[backward]).sum() < _AT_LEAST.value * (multiplying & again[backward]).sum():
        again[:] = False
    return again


def symbols_of(data: RankData, ops: I64) -> I64:
    """A number per kernel that like launches share: name, blocks and threads."""
    shape = launches(data, ops)
    mixed = data.name[ops].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= shape.blocks.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= shape.threads.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
    symbols: I64 = mixed.astype(np.int64)
    return symbols


def _changing(symbols: I64) -> Mask:
    """Of every run of `_RUN` symbols, whether it is of several kinds: one kernel many times is like itself anywhere."""
    changes = np.r_[0, np.cumsum(symbols[1:] != symbols[:-1])]
    mask: Mask = 2 * (changes[_RUN.count - 1 :] - changes[: len(symbols) - _RUN.count + 1]) >= _RUN.count
    return mask


def _hashes(symbols: I64) -> I64:
    """Of every run of `_RUN` symbols."""
    whole = np.zeros(len(symbols) - _RUN.count + 1, np.uint64)
    for i in range(_RUN.count):
        whole = whole * np.uint64(0x100000001B3) ^ symbols[i : len(symbols) - _RUN.count + 1 + i].astype(np.uint64)
    hashes: I64 = whole.astype(np.int64)
    return hashes

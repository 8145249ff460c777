"""Every field of `Change`, on a graph drawn by hand, with the step worked out on paper.

Nothing takes a moment of its own in these drawings: a kernel starts when its launch returns, when the kernel before it
on its stream ends, or when the event that it waits for is there, whichever is last. So the figures can be read off.
`[` and `]` are the begin and end of a call or a kernel, and numbers are ns since the step began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest
from msgspec.structs import fields

from fake import Row, call, make, nvtx, op, record, wait
from stepscope.derive.graph.critical_path import walk
from stepscope.derive.replay.change import Change
from stepscope.derive.replay.replay import Replay
from stepscope.derive.windows.spec import WindowSpec
from stepscope.intervals import Spans

Test = TypeVar("Test", bound=Callable[..., None])
Tables = dict[str, list[Row]]

#: Fields of `Change` that a test of this file draws.
COVERED: set[str] = set()


def draws(*names: str) -> Callable[[Test], Test]:
    """Marks a test as the drawing of some fields."""
    COVERED.update(names)
    return lambda test: test


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def step(*ranks: Tables, index: int = 0) -> Replay:
    """The step of a drawing, one set of tables per rank."""
    names = {name for tables in ranks for name in tables}
    tables = {n: [{"proc": r} | row for r, t in enumerate(ranks) for row in t.get(n, [])] for n in names}
    profile = make(**tables)
    path = walk(profile, WindowSpec(index=index), "auto")
    replay = Replay(profile, path)
    assert replay.plain == path.end - path.begin, "as drawn, the replay is the step as recorded"
    return replay


# -- the host ----------------------------------------------------------------------------------------------------------


def launched_twice() -> Tables:
    """The host takes 18 ns between two launches.

    host  0        [10 a 12]           [30 b 32]
    GPU                  [12  a  20]         [32  b  42]
    """
    return {
        "ops": [op(12, 20, "a", call=1), op(32, 42, "b", call=2)],
        "calls": [call(10, 12, id=1), call(30, 32, id=2)],
        "ranges": [nvtx(0, 50, "step 0")],
    }


@draws("host_factor")
def test_host_factor() -> None:
    # Twice as fast, b's launch returns at 32 / 2 = 16: a, from 6 to 14, is over. b ends at 16 + 10.
    assert step(launched_twice()).run(Change(host_factor={0: 2.0})) == 26


@draws("every_host_factor")
def test_every_host_factor_is_for_ranks_that_have_none_of_their_own() -> None:
    two = step(launched_twice(), launched_twice())
    # One rank alone does not shorten the step: the other still ends at 42.
    assert two.run(Change(host_factor={0: 4.0})) == 42
    # Rank 0, four times as fast, is through at 32 / 4 + 10 = 18, or when a (from 3 to 11) and b are done: 21.
    # Rank 1, twice as fast, is through at 26.
    assert two.run(Change(host_factor={0: 4.0}, every_host_factor=2.0)) == 26
    assert two.run(Change(host_factor={1: 4.0}, every_host_factor=4.0)) == 21


@draws("host_time_cut")
def test_host_time_cut() -> None:
    # Without the host's time from 15 to 25, b's launch returns at 22.
    assert step(launched_twice()).run(Change(host_time_cut={0: Spans.of(15, 25)})) == 32
    # Without all of it between the launches, at 14; but a runs until 20.
    assert step(launched_twice()).run(Change(host_time_cut={0: Spans.of(12, 30)})) == 30


@draws("calls_not_waiting")
def test_calls_not_waiting() -> None:
    """The host waits for a, and takes 10 ns more until it launches b.

    host  0  [10 a 12][12    synchronize      52]      [62 b 64]
    GPU            [12          a             52]            [64  b  74]
    """
    drawn: Tables = {
        "ops": [op(12, 52, "a", call=1), op(64, 74, "b", call=3)],
        "calls": [call(10, 12, id=1), call(12, 52, id=2, name="cudaDeviceSynchronize"), call(62, 64, id=3)],
        "ranges": [nvtx(0, 80, "step 0")],
    }
    # Not waiting, the host launches b 40 ns sooner, at 24: b follows a.
    assert step(drawn).run(Change(calls_not_waiting={0: rows(1)})) == 62


@draws("calls_not_waiting")
def test_calls_that_do_not_wait_take_no_time_either() -> None:
    """The host allocates for 30 ns while the GPU has nothing to do.

    host  0  [10 a 12][12  malloc  42][42 b 44]
    GPU            [12  a  20]              [44  b  54]
    """
    drawn: Tables = {
        "ops": [op(12, 20, "a", call=1), op(44, 54, "b", call=3)],
        "calls": [call(10, 12, id=1), call(12, 42, id=2, name="cudaMalloc"), call(42, 44, id=3)],
        "ranges": [nvtx(0, 60, "step 0")],
    }
    # b's launch returns at 14, and a runs until 20.
    assert step(drawn).run(Change(calls_not_waiting={0: rows(1)})) == 30


@draws("host_start_earlier_ns")
def test_host_start_earlier_ns() -> None:
    """Rank 1 begins the step 30 ns after rank 0, and launches as rank 0 does.

    rank 0  0 … 42 as above
    rank 1     30 + the same: its b ends at 72
    """

    def later(row: Row) -> Row:
        return row | {key: row[key] + 30 for key in ("start_ns", "end_ns")}

    two = step(launched_twice(), {name: [later(row) for row in table] for name, table in launched_twice().items()})
    assert two.plain == 72
    assert two.run(Change(host_start_earlier_ns={1: 20})) == 52
    # Rank 0 is through at 42, however early rank 1 is.
    assert two.run(Change(host_start_earlier_ns={1: 100})) == 42


# -- streams and kernels -----------------------------------------------------------------------------------------------


def launched_early(*ops: Row, **more: list[Row]) -> Tables:
    """Kernels launched one after the other, from 10 on and 2 ns each: all but the first long before they can start."""
    calls = [call(10 + 2 * k, 12 + 2 * k, id=k + 1) for k in range(len(ops))]
    numbered = [row | {"correlation": k + 1} for k, row in enumerate(ops)]
    return {"ops": numbered, "calls": calls, "ranges": [nvtx(0, 200, "step 0")], **more}


@draws("stream_waits_dropped")
def test_stream_waits_dropped() -> None:
    """Stream 7 waits for a on stream 9, and then again, later.

    stream 9  [12      a       52]
    stream 7                     [52  b  62][62  c  72]
                                 first wait  second wait
    """
    drawn = launched_early(
        op(12, 52, "a", 9),
        op(52, 62, "b", 7),
        op(62, 72, "c", 7),
        # launches at 10, 12 and 14: an event recorded behind a, and waits before b and before c
        syncs=[record(11, 1, 9), wait(11, 1, 7), wait(13, 1, 7)],
    )
    replay = step(drawn)
    # Without the first wait b runs beside a, from 14 to 24; c still waits for a.
    assert replay.run(Change(stream_waits_dropped={0: rows(1)})) == 62
    # Without both, c is through at 34: the step is over when a is.
    assert replay.run(Change(stream_waits_dropped={0: rows(1, 2)})) == 52


@draws("own_stream")
def test_own_stream() -> None:
    """Communication c is on the compute stream, although that waits for it before d.

    stream 7  [12  a  22][22   c   52][52  b  62][62  d  72]
                                                 wait for c
    """
    drawn = launched_early(
        op(12, 22, "a", 7),
        op(22, 52, "ncclDevKernel_AllReduce", 7),
        op(52, 62, "b", 7),
        op(62, 72, "d", 7),
        # launches at 10, 12, 14 and 16: an event recorded behind c, and a wait before d
        syncs=[record(13, 1, 7), wait(15, 1, 7)],
    )
    # On a stream of its own c follows a, from 22 to 52, with b beside it, and d waits for c.
    assert step(drawn).run(Change(own_stream={0: (rows(1), rows(0))})) == 62


def three_kernels() -> Tables:
    """stream 7  [12  a  32][32  b  42][42  a  62]"""
    return launched_early(op(12, 32, "a"), op(32, 42, "b"), op(42, 62, "a"))


@draws("kernel_factor")
def test_kernel_factor() -> None:
    # Both a take 10: [12 a 22][22 b 32][32 a 42].
    assert step(three_kernels()).run(Change(kernel_factor={0: {"a": 0.5}})) == 42


@draws("op_factor")
def test_op_factor() -> None:
    # Only the first a takes 10, and b takes 30: [12 a 22][22 b 52][52 a 72].
    assert step(three_kernels()).run(Change(op_factor={0: (rows(0, 1), np.array([0.5, 3.0]))})) == 72


def test_a_blocking_copy_comes_with_what_it_waits_for() -> None:
    """The host is held in its copy until the kernel is through: that is no time of its own.

    host      [10 a 12][14    copy of x.cpu()          62]
    stream 7           [12          a          52][52  62]
    """
    drawn: Tables = {
        "ops": [op(12, 52, "a", call=1), op(52, 62, "x", call=2, kind="memcpy", copy_kind="dtoh")],
        "calls": [call(10, 12, id=1), call(14, 62, id=2, name="cudaMemcpy")],
        "ranges": [nvtx(0, 70, "step 0")],
    }
    assert step(drawn).run(Change(op_factor={0: (rows(0), np.array([0.5]))})) == 42


@draws("ops_fused")
def test_ops_fused() -> None:
    """Here a kernel takes 4 ns to follow the one before it.

    stream 7  [12  a  22]    [26  b  36]    [40  c  50]
    """
    drawn = launched_early(op(12, 22, "a"), op(26, 36, "b"), op(40, 50, "c"))
    replay = step(drawn)
    assert replay.run(Change(ops_fused={0: rows(1)})) == 46
    assert replay.run(Change(ops_fused={0: rows(1, 2)})) == 42


# -- communication -----------------------------------------------------------------------------------------------------


def meets(compute: int, leaves: int, stage: str = "stage2_f") -> Tables:
    """A rank that computes, meets the others in an all-reduce, and computes again for 10 ns.

    stream 7  [4  a  4 + compute]                              [leaves  b  leaves + 10]
    stream 9                    [4 + compute   c   leaves]
    """
    arrives = 4 + compute
    return {
        "ops": [
            op(4, arrives, "a", 7, 1),
            op(arrives, leaves, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 9, 2),
            op(leaves, leaves + 10, "b", 7, 3),
        ],
        "calls": [call(2, 4, id=1), call(4, 6, id=2), call(6, 8, id=3)],
        "syncs": [record(3, 1, 7), wait(3, 1, 9), record(5, 2, 9), wait(5, 2, 7)],
        "comms": [
            {"start_ns": 4, "end_ns": 6, "tid": 1, "op": "ncclAllReduce", "communicator": "0xa", "depth": 0, "bytes": 8}
        ],
        "ranges": [nvtx(0, 200, "step 0"), nvtx(4, 6, stage)],
    }


def two_ranks() -> Replay:
    """Rank 1 computes for 40 ns longer; the transfer takes 20 from then on.

    rank 0  [4 a 14][14          c            74][74  b  84]
    rank 1  [4         a        54][54   c    74][74  b  84]
    """
    return step(meets(10, 74), meets(50, 74))


@draws("transfers_hidden")
def test_transfers_hidden() -> None:
    # Rank 0 still waits until rank 1 comes at 54.
    assert two_ranks().run(Change(transfers_hidden=True)) == 64


@draws("hidden_stage")
def test_hidden_stage() -> None:
    replay = two_ranks()
    assert replay.run(Change(transfers_hidden=True, hidden_stage="stage2_f")) == 64
    assert replay.run(Change(transfers_hidden=True, hidden_stage="stage4_f")) == 84


@draws("transfer_less_ns")
def test_transfer_less_ns() -> None:
    assert two_ranks().run(Change(transfer_less_ns={0: 5})) == 79
    # It takes no less than no time.
    assert two_ranks().run(Change(transfer_less_ns={0: 50})) == 64


@draws("departure_less_ns")
def test_departure_less_ns() -> None:
    """Rank 0 has more to receive, and leaves 8 ns after rank 1.

    rank 0  [4 a 14][14          c               82][82  b  92]
    rank 1  [4         a        54][54   c    74][74  b  84]
    """
    replay = step(meets(10, 82), meets(50, 74))
    assert replay.plain == 92
    assert replay.run(Change(departure_less_ns={0: (rows(1), rows(5))})) == 87
    # No sooner than the transfer is over: at 74, with rank 1.
    assert replay.run(Change(departure_less_ns={0: (rows(1), rows(50))})) == 84


@draws("transfers_instant")
def test_transfers_instant() -> None:
    # Rank 0 goes on when rank 1 comes at 54, and so does rank 1.
    assert two_ranks().run(Change(transfers_instant={0: rows(1), 1: rows(1)})) == 64
    # Of rank 0 alone, it is rank 1 that is through at 84.
    assert two_ranks().run(Change(transfers_instant={0: rows(1)})) == 84


# -- what the step is --------------------------------------------------------------------------------------------------


def test_the_step_is_over_when_all_its_kernels_are() -> None:
    """The transfer c is the last to end, and b, which starts after it, runs beside it.

    host      0  [10 c 12]     [20 b 22]
    stream 9           [12         c            72]
    stream 7                         [22   b  62]
    """
    drawn: Tables = {
        "ops": [op(12, 72, "ncclDevKernel_AllReduce", 9, 1), op(22, 62, "b", 7, 2)],
        "calls": [call(10, 12, id=1), call(20, 22, id=2)],
        "ranges": [nvtx(0, 200, "step 0")],
    }
    assert step(drawn).run(Change(transfers_hidden=True)) == 62


def test_kernels_launched_before_the_step() -> None:
    """The host is ahead: it launched a in the step before this one, which began at 20; the GPU came to it at 50.

    host      [0 a 2]  20  [24 b 26]
    GPU                              [50  a  60][60  b  70]
    """
    drawn: Tables = {
        "ops": [op(50, 60, "a", call=1), op(60, 70, "b", call=2)],
        "calls": [call(0, 2, id=1), call(24, 26, id=2)],
        "ranges": [nvtx(0, 20, "step 0"), nvtx(20, 200, "step 1")],
    }
    replay = step(drawn, index=1)
    assert replay.plain == 10  # from the end of the step before, at 60
    # However fast the host: a is of the step before, and stays.
    assert replay.run(Change(every_host_factor=1e6)) == 10
    assert replay.run(Change(kernel_factor={0: {"a": 0.1}})) == 10
    assert replay.run(Change(kernel_factor={0: {"b": 0.5}})) == 5


# -- two changes at once -----------------------------------------------------------------------------------------------


def test_both_changes_are_made() -> None:
    # b launched 10 ns sooner, at 22, and half as long: 27. Either alone: 32 and 37.
    cut, half = Change(host_time_cut={0: Spans.of(15, 25)}), Change(kernel_factor={0: {"b": 0.5}})
    assert step(launched_twice()).run(cut & half) == step(launched_twice()).run(half & cut) == 27
    # A straggler as fast as its peers, and a transfer of no time: rank 1 comes at 14 too.
    faster = Change(op_factor={1: (rows(0), np.array([0.2]))})
    assert two_ranks().run(faster & Change(transfers_hidden=True)) == 24


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (Change(host_factor={0: 2.0, 1: 3.0}), Change(host_factor={0: 2.0}), Change(host_factor={0: 4.0, 1: 3.0})),
        (Change(every_host_factor=2.0), Change(every_host_factor=3.0), Change(every_host_factor=6.0)),
        (
            Change(host_time_cut={0: Spans.of(0, 10)}),
            Change(host_time_cut={0: Spans.of(5, 20), 1: Spans.of(0, 1)}),
            Change(host_time_cut={0: Spans.of(0, 20), 1: Spans.of(0, 1)}),
        ),
        (
            Change(calls_not_waiting={0: rows(1, 3)}, stream_waits_dropped={0: rows(4)}, ops_fused={1: rows(5)}),
            Change(calls_not_waiting={0: rows(2, 3)}, transfers_instant={0: rows(6)}, ops_fused={1: rows(5, 7)}),
            Change(
                calls_not_waiting={0: rows(1, 2, 3)},
                stream_waits_dropped={0: rows(4)},
                ops_fused={1: rows(5, 7)},
                transfers_instant={0: rows(6)},
            ),
        ),
        # Of two places for one op, two departures or beginnings, one counts: they are not made twice.
        (
            Change(own_stream={0: (rows(1, 2), rows(0, 0))}, host_start_earlier_ns={0: 5}, transfer_less_ns={3: 7}),
            Change(own_stream={0: (rows(2, 3), rows(1, 1))}, host_start_earlier_ns={0: 9}, transfer_less_ns={3: 4}),
            Change(
                own_stream={0: (rows(1, 2, 3), rows(0, 0, 1))}, host_start_earlier_ns={0: 9}, transfer_less_ns={3: 7}
            ),
        ),
        (
            Change(departure_less_ns={0: (rows(1), rows(5))}),
            Change(departure_less_ns={0: (rows(1, 2), rows(4, 6))}),
            Change(departure_less_ns={0: (rows(1, 2), rows(5, 6))}),
        ),
        # Factors for one kernel multiply.
        (
            Change(kernel_factor={0: {"a": 0.5, "b": 0.5}}, op_factor={0: (rows(1, 2), np.array([0.5, 0.5]))}),
            Change(kernel_factor={0: {"a": 0.5}}, op_factor={0: (rows(2, 3), np.array([0.5, 2.0]))}),
            Change(
                kernel_factor={0: {"a": 0.25, "b": 0.5}}, op_factor={0: (rows(1, 2, 3), np.array([0.5, 0.25, 2.0]))}
            ),
        ),
        # All transfers hidden and some of them: all.
        (
            Change(transfers_hidden=True),
            Change(transfers_hidden=True, hidden_stage="stage2_f"),
            Change(transfers_hidden=True),
        ),
        (
            Change(transfers_hidden=True, hidden_stage="stage2_f"),
            Change(),
            Change(transfers_hidden=True, hidden_stage="stage2_f"),
        ),
    ],
)
def test_two_changes_merge(a: Change, b: Change, both: Change) -> None:
    assert plain(a & b) == plain(both)
    assert plain(a & Change()) == plain(Change() & a) == plain(a)


def plain(value: object) -> object:
    """A change as values that can be compared."""
    if isinstance(value, Change):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: plain(of) for key, of in value.items()}
    if isinstance(value, Spans):
        return list(zip(value.start.tolist(), value.end.tolist(), strict=True))
    if isinstance(value, np.ndarray):
        return value.tolist()
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def test_every_field_is_drawn() -> None:
    assert {f.name for f in fields(Change)} == COVERED

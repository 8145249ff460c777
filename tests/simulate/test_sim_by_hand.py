"""Small programs whose times can be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from stepscope.simulate.engine.network import Network, Transfer
from stepscope.simulate.engine.rank import RankSim, Wait
from stepscope.simulate.engine.record import BY_LAUNCH, Tables
from stepscope.simulate.job import costs
from stepscope.simulate.job.blocks import Block, Names, jitter_table
from stepscope.simulate.job.kernels import COMPUTE, DP, EP
from stepscope.simulate.job.mesh import Mesh, build
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.execute import Job, drive
from stepscope.simulate.trace.trace import SimGroup
from stepscope.simulate.truth.meetings import Meetings, bus_factor, ranks_text
from stepscope.simulate.truth.path import path_rows, waits_of_host
from stepscope.simulate.truth.stragglers import added_wait, gaps_of

FLAT = jitter_table("none", 0.0)
Program = Callable[[RankSim, dict[int, Block]], Wait]


def job(programs: list[Program], groups: list[tuple[int, ...]], *lengths: int) -> Job:
    """Run hand-written programs, one per rank. Blocks of one kernel are given by their length in ns."""
    s = Scenario(schedule="ddp", pp=1, dp=len(programs), ep=1, jitter=0.0, steps=1)
    mesh, names = build(s), Names()
    made = [SimGroup(i, "dp", ranks) for i, ranks in enumerate(groups)]
    network = Network(s, mesh.ranks, made, FLAT)
    sims = [RankSim(r, names, Tables(FLAT, FLAT, FLAT, FLAT), network, 0) for r in range(len(programs))]
    blocks = {ns: Block(names, [("kernel", ns)]) for ns in lengths}

    def whole(sim: RankSim, program: Program) -> Wait:
        sim.label("job")
        yield from program(sim, blocks)
        sim.steps.append((0, len(sim.op_start)))

    drive(network, sims, [whole(sim, p) for sim, p in zip(sims, programs, strict=True)])
    return Job(s, Mesh(mesh.ranks, made), names.texts, sims, network.transfers)


def launch(at: int) -> tuple[int, int]:
    """End of a launch that the host turns to at `at`, and the earliest start of its kernel."""
    done = at + costs.LAUNCH_GAP + costs.LAUNCH_CALL
    return done, done + costs.SUBMIT


def test_two_kernels_on_an_idle_gpu() -> None:
    def program(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[100_000])
        sim.compute(block[50_000])
        yield from ()

    sim = job([program], [(0,)], 100_000, 50_000).sims[0]
    first, start = launch(costs.NVTX_PUSH)
    second, _ = launch(first)
    assert list(sim.call_end) == [first, second]
    assert list(sim.op_start) == [start, start + 100_000 + costs.KERNEL_GAP]
    assert sim.op_end[1] == sim.op_start[1] + 50_000


def test_short_kernels_start_when_they_are_launched() -> None:
    def program(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[100])
        sim.compute(block[100])
        yield from ()

    sim = job([program], [(0,)], 100).sims[0]
    assert [s - e for s, e in zip(sim.op_start, sim.call_end, strict=True)] == [costs.SUBMIT] * 2


def test_a_synchronize_returns_when_the_gpu_is_done() -> None:
    def program(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[100_000])
        yield from sim.sync_stream(COMPUTE)
        sim.compute(block[100_000])

    sim = job([program], [(0,)], 100_000).sims[0]
    assert sim.call_end[1] == sim.op_end[0] + costs.SYNC_RETURN
    assert sim.op_start[1] == launch(sim.call_end[1])[1]
    # The second kernel waited for the host, which waited for the first.
    assert [w.tolist() for w in waits_of_host(sim)] == [[1], [0], [0]]
    assert sim.op_why[1] == BY_LAUNCH


def test_a_full_queue_blocks_the_launch() -> None:
    n = costs.QUEUE_DEPTH + 2

    def program(sim: RankSim, block: dict[int, Block]) -> Wait:
        for _ in range(n):
            sim.compute(block[10_000_000])
        yield from ()

    sim = job([program], [(0,)], 10_000_000).sims[0]
    assert sim.call_end[n - 1] == sim.op_start[n - costs.QUEUE_DEPTH]
    assert sim.host_wait[-1] == (n - 1, n - costs.QUEUE_DEPTH, True)


def test_a_collective_lasts_from_the_last_arrival() -> None:
    size = 24_000_000

    def program(ns: int) -> Program:
        def run(sim: RankSim, block: dict[int, Block]) -> Wait:
            sim.compute(block[ns])
            yield from sim.follow(DP, COMPUTE)
            yield from sim.collective("all_reduce", 0, size, DP)
            yield from sim.follow(COMPUTE, DP)
            sim.compute(block[1_000])

        return run

    done = job([program(100_000), program(400_000)], [(0, 1)], 100_000, 400_000, 1_000)
    early, late = done.sims
    took = costs.INTRA_LATENCY + int(size / costs.INTRA_BANDWIDTH)
    arrived = late.op_end[0] + costs.EVENT_LATENCY + DP * costs.EVENT_LATENCY_PER_STREAM
    assert late.op_start[1] == arrived
    assert early.op_start[1] == arrived - 300_000
    for sim in done.sims:
        assert 0 <= sim.op_end[1] - arrived - took < costs.END_SPREAD
    row = Meetings(done).rows()[0]
    assert (row["max_wait_ns"], row["last_rank"], row["ranks"]) == (300_000, 1, "0-1")
    assert row["transfer_ns"] == min(sim.op_end[1] for sim in done.sims) - arrived
    assert row["algbw_gbps"] == row["busbw_gbps"] == size / row["transfer_ns"]


def test_a_batch_of_transfers_ends_with_its_last_one() -> None:
    def ends(sim: RankSim, block: dict[int, Block], peer: int, ns: int) -> Wait:
        sim.compute(block[ns])
        yield from sim.follow(EP, COMPUTE)
        yield from sim.exchange(0, [Transfer(True, peer, 240, "x"), Transfer(False, peer, 240, "x")], EP)

    def middle(sim: RankSim, block: dict[int, Block]) -> Wait:
        both = [Transfer(send, peer, 240, "x") for peer in (0, 2) for send in (True, False)]
        yield from sim.exchange(0, both, EP)

    done = job(
        [lambda s, b: ends(s, b, 1, 1_000), middle, lambda s, b: ends(s, b, 1, 900_000)], [(0, 1, 2)], 1_000, 900_000
    )
    first, mid, last = done.sims
    assert abs(first.op_end[1] - mid.op_end[0]) > 800_000
    assert abs(last.op_end[1] - mid.op_end[0]) < 2 * costs.END_SPREAD
    rows = Meetings(done).rows()
    assert [(r["ranks"], r["op"], r["bytes"], r["seq"]) for r in rows[:2]] == [
        ("0>1", "send_recv", 240, 0),
        ("1>0", "send_recv", 240, 0),
    ]


def chain(took: int = 500_000) -> Job:
    """Rank 0 is slow; 1 waits for it in one group, and so comes late to 2 in another."""

    def slow(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[took])
        yield from sim.collective("all_reduce", 0, 1_000, COMPUTE)

    def victim(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[100_000])
        yield from sim.collective("all_reduce", 0, 1_000, COMPUTE)
        yield from sim.collective("all_reduce", 1, 1_000, COMPUTE)

    def waiting(sim: RankSim, block: dict[int, Block]) -> Wait:
        sim.compute(block[100_000])
        yield from sim.collective("all_reduce", 1, 1_000, COMPUTE)
        sim.compute(block[100_000])

    return job([slow, victim, waiting], [(0, 1), (1, 2)], took, 100_000)


def test_what_a_fault_adds_is_the_difference_to_the_job_without_it() -> None:
    """Rank 0 computes 500 µs, not 200: rank 1, there after 100, waits 300 longer, and rank 2 as much longer for it."""
    slow, quick = chain(500_000), chain(200_000)
    gaps = [gaps_of(Meetings(done)) for done in (slow, quick)]
    assert gaps[0][0] == 400_000 and gaps[1][0] == 100_000
    assert added_wait(*gaps) == 2 * 300_000
    assert added_wait(*gaps[::-1]) == 0  # less than without: they waited before


def test_the_critical_path_goes_through_the_last_arrivals() -> None:
    done = chain()
    ends = [(max(sim.op_end), sim.rank) for sim in done.sims]
    end, rank = max(ends)
    rows = path_rows(done, Meetings(done), 0, rank, list(done.sims[rank].op_end).index(end))
    assert [(r["rank"], r["kind"]) for r in rows] == [
        (0, "host"),
        (0, "launch"),
        (0, "compute"),
        (0, "queue"),
        (0, "comm"),
        (1, "queue"),
        (1, "comm"),
        (2, "queue"),
        (2, "compute"),
    ]
    assert rows[0]["start_ns"] == 0
    assert all(a["end_ns"] == b["start_ns"] for a, b in pairwise(rows))
    assert rows[-1]["end_ns"] == max(max(sim.op_end) for sim in done.sims)


def test_ranks_and_factors_are_written_as_elsewhere() -> None:
    assert ranks_text((0, 1, 2, 3, 8, 10, 11)) == "0-3,8,10-11"
    assert bus_factor("all_reduce", 4) == 1.5
    assert bus_factor("all_to_all", 4) == bus_factor("all_gather", 4) == 0.75
    assert bus_factor("send_recv", 2) == 1.0

"""What must hold of every simulated job, whatever its schedule: order on streams, launches, events, collectives."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.simulate.job.scenario import SCHEDULES, Scenario
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.trace.trace import DOMAIN_DEFAULT, SYNC_STREAM, SYNC_STREAM_WAIT, SimTrace

SMALL = {"micro_batches": 4, "steps": 2}
JOBS = {
    "dualpipev": Scenario(ep=2, nodes=2, **SMALL),
    "dualpipev, uneven layers": Scenario(ep=2, layers=6, **SMALL),
    "dualpipev, every axis": Scenario(dp=2, cp=2, ep=2, tp=2, nodes=4, micro_batches=4, steps=1),
    "1f1b": Scenario(schedule="1f1b", pp=4, dp=2, ep=1, **SMALL),
    "interleaved": Scenario(schedule="interleaved", pp=2, ep=2, vpp=2, **SMALL),
    "zero-bubble": Scenario(schedule="zero-bubble", pp=4, ep=1, **SMALL),
    "fsdp": Scenario(schedule="fsdp", pp=1, dp=2, ep=2, **SMALL),
    "ddp": Scenario(schedule="ddp", pp=1, dp=4, ep=1, **SMALL),
    "ddp, full queue": Scenario(schedule="ddp", pp=1, dp=2, ep=1, scale=4, **SMALL),
    "faulty": Scenario(ep=2, faults=("host-syncs:", "alloc:", "serialized:", "slow-host:rank=1"), **SMALL),
    "no jitter": Scenario(ep=2, jitter=0.0, **SMALL),
}


@pytest.fixture(scope="module", params=JOBS, ids=list(JOBS))
def job(request: pytest.FixtureRequest) -> Job:
    return engine.run(JOBS[request.param])


@pytest.fixture(scope="module")
def trace(job: Job) -> SimTrace:
    return assemble.trace(job)


def test_columns_are_sorted_and_alike_in_length(trace: SimTrace) -> None:
    for table in (trace.ops, trace.calls, trace.ranges):
        key = table.rank.astype(np.int64) << 48 | table.start
        assert (np.diff(key) >= 0).all()
        assert {len(column) for column in vars(table).values()} == {len(key)}
        assert (table.end >= table.start).all()


def test_a_stream_runs_one_op_at_a_time_in_launch_order(trace: SimTrace) -> None:
    ops = trace.ops
    order = np.lexsort([ops.correlation, ops.stream, ops.rank])
    same = (np.diff(ops.rank[order]) == 0) & (np.diff(ops.stream[order]) == 0)
    assert (ops.start[order][1:] >= ops.end[order][:-1])[same].all()


def test_no_op_starts_before_its_launch_returned(trace: SimTrace) -> None:
    calls = {(r, c): e for r, c, e in zip(*_lists(trace.calls, "rank", "correlation", "end"), strict=True)}
    launched = [calls[key] for key in zip(*_lists(trace.ops, "rank", "correlation"), strict=True)]
    assert (trace.ops.start > np.array(launched)).all()


def test_correlations_are_unique_within_a_process(trace: SimTrace) -> None:
    for table in (trace.calls, trace.ops):
        pairs = np.stack([table.rank, table.correlation])
        assert np.unique(pairs, axis=1).shape == pairs.shape


def test_calls_of_a_thread_follow_each_other(trace: SimTrace) -> None:
    calls = trace.calls
    order = np.lexsort([calls.start, calls.tid, calls.rank])
    same = (np.diff(calls.rank[order]) == 0) & (np.diff(calls.tid[order]) == 0)
    assert (calls.start[order][1:] > calls.end[order][:-1])[same].all()


def test_ranges_nest(trace: SimTrace, job: Job) -> None:
    for sim in job.sims:
        parent = np.array(sim.range_parent)
        start, end = np.array(sim.range_start), np.array(sim.range_end)
        has = parent >= 0
        assert (start[has] > start[parent[has]]).all()
        assert (end[has] < end[parent[has]]).all()
        assert (end > start).all()


def test_ops_wait_for_the_events_that_their_stream_was_told_to(trace: SimTrace) -> None:
    """The last op of the recording stream before the event ends before the next op of the waiting stream starts."""
    for rank in {r.rank for r in trace.ranks}:
        ops = {k: v[trace.ops.rank == rank] for k, v in vars(trace.ops).items()}
        record = {
            e: (s, c)
            for r, s, c, e in zip(*_lists(trace.events, "rank", "stream", "correlation", "event"), strict=True)
            if r == rank
        }
        by_stream = {}
        for stream in np.unique(ops["stream"]).tolist():
            mine = ops["stream"] == stream
            order = np.argsort(ops["correlation"][mine])
            by_stream[stream] = tuple(ops[k][mine][order] for k in ("correlation", "start", "end"))
        waits = (trace.syncs.kind == SYNC_STREAM_WAIT) & (trace.syncs.rank == rank)
        columns = (getattr(trace.syncs, k)[waits].tolist() for k in ("stream", "correlation", "event"))
        for stream, at, event in zip(*columns, strict=True):
            source, recorded = record[event]
            if source not in by_stream or stream not in by_stream:
                continue
            before = np.searchsorted(by_stream[source][0], recorded) - 1
            after = np.searchsorted(by_stream[stream][0], at)
            if before >= 0 and after < len(by_stream[stream][0]):
                assert by_stream[stream][1][after] > by_stream[source][2][before]


def test_a_stream_synchronize_returns_after_the_stream(trace: SimTrace) -> None:
    ops, syncs = trace.ops, trace.syncs
    for i in np.flatnonzero(syncs.kind == SYNC_STREAM).tolist():
        before = (
            (ops.rank == syncs.rank[i]) & (ops.stream == syncs.stream[i]) & (ops.correlation < syncs.correlation[i])
        )
        assert ops.end[before].max() < syncs.end[i]


def test_collectives_end_after_the_last_arrival_on_every_rank(job: Job) -> None:
    kinds = {job.names.index(n) for n in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all") if n in job.names}
    meetings: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for sim in job.sims:
        for op, group, seq, _, _, kind in sim.comm:
            if kind in kinds:
                side = (sim.rank, sim.op_start[op], sim.op_end[op])
                meetings.setdefault((group, seq), []).append(side)
    for (group, _), sides in meetings.items():
        assert sorted(r for r, _, _ in sides) == sorted(job.mesh.groups[group].ranks)
        assert min(end for _, _, end in sides) > max(start for _, start, _ in sides)


def test_transfers_end_after_both_sides_are_there(job: Job) -> None:
    for t in job.transfers:
        source, target = job.sims[t.source], job.sims[t.target]
        both = max(source.op_start[t.source_op], target.op_start[t.target_op])
        assert min(source.op_end[t.source_op], target.op_end[t.target_op]) > both


def test_the_setup_label_comes_first_and_encloses_all(trace: SimTrace) -> None:
    for rank in trace.ranks:
        mine = np.flatnonzero((trace.ranges.rank == rank.rank) & (trace.ranges.domain == DOMAIN_DEFAULT))
        assert trace.names[trace.ranges.name[mine[0]]] == rank.setup
        assert trace.ranges.end[mine[0]] == trace.ranges.end[mine].max()
        assert trace.ranges.start[mine[0]] > 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_same_seed_gives_the_same_job(schedule: str) -> None:
    pp = 1 if schedule in ("ddp", "fsdp") else 2
    a, b, c = (
        assemble.trace(engine.run(Scenario(schedule=schedule, pp=pp, ep=2, micro_batches=4, steps=1, seed=seed)))
        for seed in (3, 3, 4)
    )
    assert a.names == b.names
    for table in ("ops", "calls", "ranges", "syncs", "events"):
        for name, column in vars(getattr(a, table)).items():
            np.testing.assert_array_equal(column, getattr(getattr(b, table), name))
    assert not np.array_equal(a.ops.start, c.ops.start)


def test_a_node_can_be_had_by_itself() -> None:
    job = engine.run(Scenario(ep=2, nodes=2, micro_batches=4, steps=1))
    whole, part = assemble.trace(job), assemble.trace(job, [1])
    assert [r.rank for r in part.ranks] == [2, 3]
    np.testing.assert_array_equal(part.ops.start, whole.ops.start[np.isin(whole.ops.rank, [2, 3])])


def test_about_as_many_kernels_as_asked_for() -> None:
    for wanted in (20_000, 100_000):
        ops = assemble.trace(engine.run(Scenario(ep=2, kernels=wanted))).ops
        assert 0.9 * wanted < (ops.kind == 0).sum() < 1.15 * wanted


def test_clock_faults_move_the_records_and_nothing_else() -> None:
    healthy = Scenario(ep=2, nodes=2, micro_batches=4, steps=1)
    wrong = Scenario(ep=2, nodes=2, micro_batches=4, steps=1, faults=("clock:node=1,offset_us=500,drift_ppm=-40",))
    a, b = (assemble.trace(engine.run(s)) for s in (healthy, wrong))
    assert b.epoch_ns[1] - b.epoch_ns[0] == 500_000
    first = a.ops.rank < 2
    np.testing.assert_array_equal(a.ops.start[first], b.ops.start[first])
    np.testing.assert_array_equal(b.ops.start[~first], a.ops.start[~first] + a.ops.start[~first] * -40 // 1_000_000)


def _lists(table: object, *names: str) -> list[list[int]]:
    return [getattr(table, name).tolist() for name in names]

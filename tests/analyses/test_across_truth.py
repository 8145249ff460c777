"""Simulated jobs against the simulator's own truth: waits and transfers to the nanosecond where clocks are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs import written
from marks import slow_unless
from stepscope import api
from stepscope.simulate.job.costs import END_SPREAD
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.programs.execute import Job
from stepscope.simulate.run import truth

BASE = {"layers": 4, "micro_batches": 4, "steps": 2, "seed": 5}
JOBS = {
    "dualpipev": Scenario(pp=2, ep=4, nodes=2, faults=("straggler:rank=3",), **BASE),
    "1f1b": Scenario(schedule="1f1b", pp=4, ep=1, dp=2, nodes=4, **BASE),
    "interleaved": Scenario(schedule="interleaved", pp=2, ep=1, tp=2, dp=2, nodes=2, **BASE),
    "fsdp": Scenario(schedule="fsdp", pp=1, ep=1, dp=8, nodes=2, **BASE),
    "ring": Scenario(schedule="ddp", pp=1, ep=2, dp=2, cp=2, nodes=2, **BASE),
}
TIMES = ("transfer_ns", "max_wait_ns", "skew_ns")


def key(row):
    return row["op"], row["ranks"], row["seq"], row["bytes"]


def by_key(rows):
    """Rows by what identifies a communication; two groups of the same ranks are told apart by their order."""
    found: dict = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


@pytest.mark.parametrize("name", slow_unless("interleaved".__eq__, JOBS))
@pytest.mark.parametrize("form", ["nsys", "kineto"])
def test_waits_and_transfers_are_the_truth(name, form):
    with written(JOBS[name], (form,)) as (job, folder):
        want = truth(job)["collectives"]["rows"]
        result = api.analyse(api.open(folder, cache=False), "collectives")
    rows = result.rows.to_dicts()
    assert len(rows) == len(want) > 0
    mine, theirs = by_key(rows), by_key(want)
    assert mine.keys() == theirs.keys()
    for k, expected in theirs.items():
        for row, truth_row in zip(mine[k], expected, strict=True):
            for column in (*TIMES, "last_rank"):
                assert row[column] == truth_row[column], (k, column)
            assert row["busbw_gbps"] == pytest.approx(truth_row["busbw_gbps"], rel=1e-12)
    if form == "nsys":
        assert {r["group"] for r in rows} == {r["group"] for r in want}


@pytest.mark.parametrize("form", slow_unless("nsys".__eq__, ["nsys", "kineto"]))
@pytest.mark.slow
def test_a_clock_offset_changes_nothing(form):
    """500 µs between two hosts, and drift: where other tools blame the wrong rank."""
    faults = ("straggler:rank=1", "clock:node=1,offset_us=500,drift_ppm=20")
    with written(Scenario(pp=2, ep=4, nodes=2, faults=faults, **BASE), (form,)) as (job, folder):
        told = truth(job)
        profile = api.open(folder, cache=False)
        rows, raw = (by_key(api.analyse(profile, "collectives", align=a).rows.to_dicts()) for a in ("auto", "none"))
        named = api.analyse(profile, "stragglers").summary["stragglers"]
        clocks = api.analyse(profile, "clocks").rows.to_dicts()
    assert [s["rank"] for s in named] == [1]
    want = by_key(told["collectives"]["rows"])
    assert rows.keys() == want.keys()
    worst = max(abs(a[c] - b[c]) for k in want for a, b in zip(rows[k], want[k], strict=True) for c in TIMES)
    assert worst < 1000  # ends of one collective are up to 900 ns apart in the simulation
    assert max(abs(a[c] - b[c]) for k in want for a, b in zip(raw[k], want[k], strict=True) for c in TIMES) > 400_000
    span = 0.125e9
    for row in clocks:
        truth_row = next(c for c in told["clocks"]["rows"] if c["host"] == ("node1" if row["clock"] else "node0"))
        end = row["offset_ns"] + row["drift_ppm"] * span / 1e6
        assert abs(row["offset_ns"] - truth_row["offset_ns"]) < 1000
        assert abs(end - truth_row["offset_ns"] - truth_row["drift_ppm"] * span / 1e6) < 1000


CLOCKED = {
    "1f1b": {"schedule": "1f1b", "pp": 4, "ep": 2},
    "dualpipev": {"pp": 2, "ep": 4},
    "fsdp": {"schedule": "fsdp", "pp": 1, "ep": 2, "dp": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOCKED)
def test_the_same_job_on_clocks_that_differ(name):
    """500 µs and drift: the same names, causes and path; every figure within the spread of a collective's ends."""
    found = []
    for clock in ((), ("clock:node=1,offset_us=500,drift_ppm=20",)):
        with written(Scenario(nodes=2, faults=("straggler:rank=2", *clock), **CLOCKED[name], **BASE)) as (_, folder):
            profile = api.open(folder, cache=False)
            found.append({c: api.analyse(profile, c) for c in ("collectives", "stragglers", "critical-path")})
    rows, others = (by_key(r["collectives"].rows.to_dicts()) for r in found)
    assert rows.keys() == others.keys()
    for k, mine in rows.items():
        for a, b in zip(mine, others[k], strict=True):
            assert a["last_rank"] == b["last_rank"], k
            assert all(abs(a[c] - b[c]) <= END_SPREAD for c in TIMES), k
    ranks, same = ({r["rank"]: r for r in x["stragglers"].rows.to_dicts()} for x in found)
    for rank, row in ranks.items():
        assert row["cause"] == same[rank]["cause"]
        # Two clocks do not resolve an arrival that is less than the residual behind another.
        assert row["times_last"] == pytest.approx(same[rank]["times_last"], abs=2)
        assert row["late_ns"] == pytest.approx(same[rank]["late_ns"], abs=END_SPREAD * max(row["times_last"], 1))
    assert [s["rank"] for s in found[1]["stragglers"].summary["stragglers"]] == [2]
    path, other = (x["critical-path"] for x in found)
    what = ["rank", "kind", "stream", "name", "range"]
    assert path.rows.select(what).equals(other.rows.select(what))
    for by in ("by_kind", "by_rank"):
        for k, total in path.summary[by].items():
            assert other.summary[by][k]["total_ns"] == pytest.approx(total["total_ns"], abs=END_SPREAD)
    assert other.summary["step"]["step_ns"] == pytest.approx(path.summary["step"]["step_ns"], abs=END_SPREAD)


@pytest.mark.slow
def test_offsets_of_a_second_over_many_hosts():
    faults = tuple(f"clock:node={n},offset_us={(-1) ** n * 990_000 / (n + 1)},drift_ppm={5 * n}" for n in range(8))
    scenario = Scenario(schedule="1f1b", pp=4, ep=1, dp=4, nodes=8, layers=4, micro_batches=8, steps=3, faults=faults)
    with written(scenario) as (job, folder):
        told = {row["host"]: row for row in truth(job)["clocks"]["rows"]}
        result = api.analyse(api.open(folder, cache=False), "clocks")
    assert result.rows["offset_ns"][0] == 0
    for row in result.rows.to_dicts():
        assert abs(row["offset_ns"] - told[row["host"]]["offset_ns"]) < 1500, row
        assert row["residual_p95_ns"] < 1500


BLAME = {
    **JOBS,
    "1f1b, a straggler": replace(JOBS["1f1b"], faults=("straggler:rank=3",)),
    "zero-bubble, a slow host": Scenario(
        schedule="zero-bubble", pp=4, ep=2, dp=2, nodes=2, faults=("slow-host:rank=3",), **BASE
    ),
    "interleaved, syncs": replace(JOBS["interleaved"], faults=("host-syncs:rank=1",)),
    "fsdp, a straggler": replace(JOBS["fsdp"], faults=("straggler:rank=3,factor=1.2",)),
    "ring, late input": replace(JOBS["ring"], faults=("dataloader:rank=2",)),
    "ddp, a full queue": Scenario(schedule="ddp", pp=1, dp=2, ep=1, scale=6.0, **BASE),
}
#: How far from what a fault added the blame may be: a trace does not say what would have been without it.
WITHIN = 0.25
#: What others may be given of it, as a share.
OTHERS = 0.15


def late(scenario: Scenario) -> tuple[Job, dict[int, dict[str, Any]]]:
    """A job, and what `stragglers` says of its ranks."""
    with written(scenario) as (job, folder):
        rows = api.analyse(api.open(folder, cache=False), "stragglers").rows.to_dicts()
    assert sum(r["share_pct"] for r in rows) == pytest.approx(100)
    return job, {row["rank"]: row for row in rows}


@pytest.mark.parametrize("name", slow_unless(("fsdp", "interleaved", "ddp, a full queue").__contains__, BLAME))
def test_blame_is_the_truth(name):
    """Who came last, and by how much, to the nanosecond; followed to its root, what the fault added is its rank's.

    The truth of the latter is the same job simulated without the fault: so is what others have of their own.
    """
    job, rows = late(BLAME[name])
    want = {row["rank"]: row for row in truth(job)["stragglers"]["rows"]}
    for rank, row in rows.items():
        for column in ("raw_ns", "times_last"):
            assert row[column] == want[rank][column], (rank, column)
    if not BLAME[name].faults:
        assert all(row["late_ns"] == 0 and row["cause"] is None for row in want.values())
        return
    assert {r: row["cause"] for r, row in rows.items()} == {r: row["cause"] for r, row in want.items()}
    _, healthy = late(replace(BLAME[name], faults=()))
    rise = {rank: row["late_ns"] - healthy[rank]["late_ns"] for rank, row in rows.items()}
    (guilty,) = (rank for rank, row in want.items() if row["cause"])
    added = want[guilty]["late_ns"]
    assert rise[guilty] == pytest.approx(added, rel=WITHIN)
    assert max(ns for rank, ns in rise.items() if rank != guilty) < OTHERS * added


@pytest.mark.slow
def test_blame_through_kernels_of_several_transfers():
    """Transfers of one kernel, microseconds apart: which ended last is not in a trace, and little depends on it."""
    scenario = Scenario(
        pp=4, ep=8, nodes=16, layers=8, micro_batches=8, steps=2, seed=19, faults=("late-node:node=6,delay_us=8000",)
    )
    job, rows = late(scenario)
    want = {row["rank"]: row for row in truth(job)["stragglers"]["rows"]}
    assert all(row["raw_ns"] == want[rank]["raw_ns"] for rank, row in rows.items())
    assert {r for r, row in rows.items() if row["cause"]} == {r for r, row in want.items() if row["cause"]} == {12, 13}
    _, healthy = late(replace(scenario, faults=()))
    rise = {rank: row["late_ns"] - healthy[rank]["late_ns"] for rank, row in rows.items()}
    assert rise[12] + rise[13] == pytest.approx(want[12]["late_ns"] + want[13]["late_ns"], rel=WITHIN)
    assert max(ns for rank, ns in rise.items() if rank not in (12, 13)) < OTHERS * rise[13]

"""Ranks that were recorded for unlike times: longer records have more of everything, which is not more to compute."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fake import Row, call, make, op
from jobs import written
from stepscope import api
from stepscope.derive.windows.spec import WindowSpec
from stepscope.findings.case import Case
from stepscope.findings.detectors.compute_imbalance import uneven
from stepscope.findings.evidence.peers import compared
from stepscope.simulate.job.scenario import Scenario

MS = 1_000_000


def recorded(first: int, last: int, proc: int, each: int = 9 * MS, kernel: str = "gemm") -> dict[str, list[Row]]:
    """A kernel every 10 ms, from one to another, launched shortly before."""
    at = range(first, last)
    own = {"proc": proc}
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    return {
        "ops": [
            *(op(10 * MS * i, 10 * MS * i + each, kernel, call=2 * i + 1) | own for i in at),
            *(op(10 * MS * i + each, 10 * MS * (i + 1) - 1000, name, 9, call=2 * i + 2) | own for i in at),
        ],
        "calls": [call(10 * MS * i - 5000 + k, 10 * MS * i - 4999 + k, id=2 * i + k) | own for i in at for k in (1, 2)],
    }


def job(stages: bool, *ranks: dict[str, list[Row]]) -> api.Profile:
    setup = [f"rank={r}; pp={r}/{len(ranks)}" if stages else None for r in range(len(ranks))]
    tables = {k: sorted((row for rank in ranks for row in rank[k]), key=lambda r: r["start_ns"]) for k in ranks[0]}
    return make([{"proc": r, "setup": text} for r, text in enumerate(setup)], **tables)


def test_a_stage_with_longer_records_has_no_more_to_compute() -> None:
    case = Case(job(True, recorded(1, 193, 0), recorded(60, 125, 1)), WindowSpec())
    assert case.kind == "capture" and uneven(case) == {}


def test_a_stage_with_more_to_compute_has_it_in_what_all_recorded() -> None:
    case = Case(job(True, recorded(1, 193, 0, 6 * MS), recorded(60, 125, 1, kernel="head")), WindowSpec())
    amount = uneven(case)
    assert amount[0] == 65 * 6 * MS and amount[1] == 65 * 9 * MS


def test_a_peer_with_longer_records_is_no_straggler() -> None:
    case = Case(job(False, recorded(1, 193, 0), recorded(60, 125, 1)), WindowSpec())
    assert {r: c.excess_ns for r, c in compared(case).items()} == {0: 0, 1: 0}


def test_the_rank_that_computes_longer_is_named_though_it_recorded_less() -> None:
    """Of four steps, the straggler's node recorded less than two; no step is marked."""
    scenario = Scenario(
        schedule="fsdp", pp=1, dp=4, ep=1, nodes=4, layers=4, micro_batches=2, steps=4, faults=("straggler:rank=1",)
    )
    with written(scenario) as (_, folder):
        for file in folder.glob("*.sqlite"):
            cut(file, whole=file.stem != "node1")
        profile = api.open(folder, cache=False)
        answer = api.analyse(profile, "stragglers")
        found = api.analyse(profile, "diagnose").rows.to_dicts()
    assert {r["rank"]: r["cause"] for r in answer.rows.to_dicts() if r["cause"]} == {1: "compute"}
    assert any(n.code == "compared-where-all-recorded" for n in answer.notes)
    assert [r["ranks"] for r in found if r["id"] in ("straggler", "compute-imbalance")] == ["1"]


def cut(file: Path, whole: bool) -> None:
    """Take the marks of steps out of an nsys export, and unless it stays whole, all records of its first 60 %."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("delete from NVTX_EVENTS where text like 'step %' or text like '% mb %'")
        if not whole:
            low, high = db.execute("select min(start), max(end) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            for table in ("KERNEL", "RUNTIME", "MEMCPY", "SYNCHRONIZATION"):
                db.execute(f"delete from CUPTI_ACTIVITY_KIND_{table} where start < ?", (low + 0.6 * (high - low),))
            db.execute("delete from NVTX_EVENTS where start < ? and end < ?", (low + 0.6 * (high - low), high))

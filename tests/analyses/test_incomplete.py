"""Ranks that are missing, died or stopped early, and files of different tools: answered for what is there, and said."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from jobs import written
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

BASE = {"layers": 4, "micro_batches": 4, "steps": 2, "seed": 3}
TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY")


@pytest.fixture(scope="module")
def job():
    with written(Scenario(pp=2, ep=4, nodes=2, **BASE), ("nsys", "kineto")) as (_, folder):
        yield folder


def ask(paths, command="collectives"):
    return api.analyse(api.open(*map(str, paths), cache=False), command)


def complete(job) -> dict:
    return {key(r): r for r in ask([job / "node0.sqlite", job / "node1.sqlite"]).rows.to_dicts()}


def key(row):
    return row["group"], row["op"], row["seq"], row["ranks"]


def test_a_missing_node(job):
    """What the present ranks did among themselves is as before; groups that may reach further say so."""
    result = ask([job / "node0.sqlite"])
    rows = result.rows.to_dicts()
    want = complete(job)
    whole = [r for r in rows if r["axis"] == "ep"]
    assert whole and all(want[key(r)] == {**r, "start_ns": want[key(r)]["start_ns"]} for r in whole)
    assert any("labels describe 8 ranks, the profile has 4" in n for n in result.notes)
    assert any("may: nothing tells the size" in n for n in result.notes)
    world = [r for r in rows if r["op"] == "all_reduce" and r["bytes"] == 4]
    assert world and all(r["busbw_gbps"] is None for r in world)


def test_a_missing_rank_of_torch(job):
    files = [job / f"rank{r}.pt.trace.json.gz" for r in range(7)]
    result = ask(files)
    assert any("1 of the job's 8 ranks are not in the profile (rank 7)" in n for n in result.notes)
    lacking = result.rows.filter(result.rows["ranks"].is_in(["4-7", "0-7"]))
    assert lacking.height and set(lacking["present"]) == {3, 7}
    full = result.rows.filter(result.rows["ranks"] == "0-3")
    assert full.height and set(full["present"]) == {4}


def cut(source: Path, target: Path, pid: int, begin: int = 0, end: int = 1 << 62) -> None:
    """The file with what one process did outside [begin, end) taken out."""
    shutil.copy(source, target)
    with sqlite3.connect(target) as db:
        for table in TABLES:
            who = "globalTid" if table != "CUPTI_ACTIVITY_KIND_KERNEL" and "MEMCPY" not in table else "globalPid"
            outside = f"(start >= {end} or start < {begin})"
            kept = " and eventType != 75 and text not like 'rank=%'" if table == "NVTX_EVENTS" else ""
            db.execute(f"delete from {table} where (({who} >> 24) & 16777215) = {pid} and {outside}{kept}")
    db.close()


@pytest.mark.parametrize("dead", [True, False])
def test_a_rank_that_died_or_came_late(job, tmp_path, dead):
    """Rank 5 has half of the capture. Its collectives are paired with the same ones as before, the rest lack it."""
    moment = 40_000_000
    pid = api.open(job / "node1.sqlite", cache=False).ranks.filter(pl.col("rank") == 5)["pid"][0]
    span = {"end": moment} if dead else {"begin": moment}
    cut(job / "node1.sqlite", tmp_path / "node1.sqlite", pid, **span)
    result = ask([job / "node0.sqlite", tmp_path / "node1.sqlite"])
    want = complete(job)
    rows = [r for r in result.rows.to_dicts() if r["op"] != "send_recv"]
    assert any("rank 5 recorded fewer of its collectives" in n for n in result.notes)
    assert any("communications lack a rank" in n for n in result.notes)
    whole = [r for r in rows if r["present"] == want[key(r)]["present"]]
    assert len(whole) > 100
    for row in whole:
        assert row["transfer_ns"] == want[key(row)]["transfer_ns"], row
    partial = [r for r in rows if r["present"] < want[key(r)]["present"]]
    assert partial and {r["ranks"] for r in partial} <= {"4-7", "0-7"}


@pytest.mark.slow
@pytest.mark.parametrize("dead", [True, False])
def test_nobody_is_blamed_for_working_while_another_was_not_recorded(job, tmp_path, dead):
    """Rank 5 has half of the capture: its peers computed more, which makes none of them a straggler; the path sums."""
    pid = api.open(job / "node1.sqlite", cache=False).ranks.filter(pl.col("rank") == 5)["pid"][0]
    cut(
        job / "node1.sqlite", tmp_path / "node1.sqlite", pid, **({"end": 40_000_000} if dead else {"begin": 40_000_000})
    )
    files = [job / "node0.sqlite", tmp_path / "node1.sqlite"]
    late = ask(files, "stragglers")
    assert late.rows["cause"].null_count() == 8
    assert any("rank 5 recorded less than ranks that do the same" in n for n in late.notes)
    path = ask(files, "critical-path")
    assert path.rows["dur_ns"].sum() == path.summary["step"]["step_ns"]
    for result in (late, path):
        assert any("rank 5 recorded fewer of its collectives" in n for n in result.notes)


@pytest.mark.slow
def test_different_numbers_of_steps(job, tmp_path):
    """One node stopped after the first step: what both have is matched."""
    profile = api.open(job / "node1.sqlite", cache=False)
    source = job / "node1.sqlite"
    for pid in profile.ranks["pid"].to_list():
        cut(source, tmp_path / f"{pid}.sqlite", pid, end=60_000_000)
        source = tmp_path / f"{pid}.sqlite"
    (tmp_path / "short").mkdir()
    shutil.copy(source, tmp_path / "short/node1.sqlite")
    result = ask([job / "node0.sqlite", tmp_path / "short/node1.sqlite"])
    want = complete(job)
    both = [r for r in result.rows.to_dicts() if r["ranks"] == "0-7" and r["present"] == 8]
    assert len(both) == 2 and all(r["transfer_ns"] == want[key(r)]["transfer_ns"] for r in both)
    assert any("ranks 4-7 recorded fewer" in n for n in result.notes)


def test_one_node_by_nsys_the_other_by_torch(job):
    """Their communicators have different names: nothing pairs them, and that is said."""
    result = ask([job / "node0.sqlite", *(job / f"rank{r}.pt.trace.json.gz" for r in range(4, 8))])
    rows = result.rows.filter(result.rows["axis"] == "ep").to_dicts()
    assert {(r["ranks"], r["known_by"], r["present"]) for r in rows} == {("0-3", "payload", 4), ("4-7", "metadata", 4)}
    assert any("no common communication aligns ranks" in n for n in result.notes)

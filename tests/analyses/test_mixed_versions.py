"""One job whose nodes were recorded by different versions of nsys, in different formats, by different tools."""

from __future__ import annotations

import shutil

import pytest
from versions import parquet, rewrite

from jobs import written
from stepscope import api
from stepscope.simulate.job.scenario import Scenario

COMMANDS = ("collectives", "stragglers", "clocks", "critical-path", "mesh")


@pytest.fixture(scope="module")
def job():
    faults = ("straggler:rank=1", "clock:node=1,offset_us=500")
    scenario = Scenario(pp=2, ep=2, dp=2, nodes=2, layers=4, micro_batches=4, steps=2, seed=3, faults=faults)
    with written(scenario, ("nsys", "kineto")) as (_, folder):
        yield folder


@pytest.fixture(scope="module")
def whole(job):
    return {c: ask([job / "node0.sqlite", job / "node1.sqlite"], c) for c in COMMANDS}


def beside(job, tmp_path):
    """Copies of both nodes in one folder: the first file's clock is the reference, by the order of paths."""
    return [shutil.copy(job / f"node{n}.sqlite", tmp_path / f"node{n}.sqlite") for n in (0, 1)]


def ask(paths, command):
    return api.analyse(api.open(*map(str, paths), cache=False), command)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.25.0", "3.16.1"])
def test_versions_that_record_the_same_give_the_same(job, whole, tmp_path, version):
    """Codes, columns and tables differ; what was recorded does not."""
    first, other = beside(job, tmp_path)
    rewrite(other, version)
    for command in COMMANDS:
        result = ask([first, other], command)
        assert [s.schema for s in result.sources] == ["3.20.3", version]
        assert result.rows.equals(whole[command].rows), command
        assert result.notes == whole[command].notes, command


@pytest.mark.slow
def test_sqlite_beside_parquet_of_another_version(job, whole, tmp_path):
    first, older = beside(job, tmp_path)
    rewrite(older, "3.16.1")
    folder = parquet(older, tmp_path / "node1_pqtdir")
    for command in COMMANDS:
        result = ask([first, folder], command)
        assert [s.format for s in result.sources] == ["nsys-sqlite", "nsys-parquet"]
        same = [c for c in result.rows.columns if c != "file"]
        assert result.rows.select(same).equals(whole[command].rows.select(same)), command


@pytest.mark.slow
def test_a_version_without_payloads_answers_for_what_labels_say(job, whole, tmp_path):
    """2023.2 exports no payloads: that node's experts are matched by labels; nothing pairs it with the other node."""
    first, old = beside(job, tmp_path)
    rewrite(old, "3.1.7")
    found = {c: ask([first, old], c) for c in COMMANDS}
    assert [s.tool for s in found["clocks"].sources] == ["2025.3.2.0", "2023.2.1.0"]
    rows = found["collectives"].rows.filter(found["collectives"].rows["axis"] == "ep")
    by_ranks = {ranks: set(mine["known_by"]) for (ranks,), mine in rows.group_by("ranks")}
    assert by_ranks == {"0-1": {"payload"}, "2-3": {"payload"}, "4-5": {"labels"}, "6-7": {"labels"}}
    want = {(r["ranks"], r["seq"]): r for r in whole["collectives"].rows.to_dicts() if r["axis"] == "ep"}
    assert len(rows) == len(want)
    for row in rows.to_dicts():
        same = want[row["ranks"], row["seq"]]
        assert (row["op"], row["last_rank"]) == (same["op"], same["last_rank"])
        for column in ("transfer_ns", "max_wait_ns", "skew_ns"):  # one of the two is on a corrected clock
            assert row[column] == pytest.approx(same[column], rel=5e-5, abs=2), (row["ranks"], row["seq"], column)
    for command in COMMANDS:
        assert any("no common communication aligns ranks 0-3 | 4-7" in n for n in found[command].notes), command
    named = [(r["rank"], r["cause"]) for r in found["stragglers"].rows.to_dicts() if r["cause"]]
    assert named == [(1, "compute")]
    path = found["critical-path"]
    assert path.rows["dur_ns"].sum() == path.summary["step"]["step_ns"]
    assert found["clocks"].rows["offset_ns"].to_list() == [0, None]


@pytest.mark.slow
def test_three_tools_at_once(job, tmp_path):
    """A node's SQLite, and the other node's ranks by torch.profiler, one of which is missing."""
    files = [job / "node0.sqlite", *(job / f"rank{r}.pt.trace.json.gz" for r in (4, 5, 6))]
    for command in COMMANDS:
        result = ask(files, command)
        assert result.rows.height and any("ranks 7" in n or "rank 7" in n for n in result.notes), command

"""A window on questions across ranks, the options of the command line, and refusals."""

from __future__ import annotations

import json

import polars as pl
import pytest

from jobs import written
from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.simulate.job.scenario import Scenario


@pytest.fixture(scope="module")
def job():
    scenario = Scenario(schedule="fsdp", pp=1, ep=1, dp=4, nodes=2, layers=2, micro_batches=2, steps=3)
    with written(scenario) as (_, folder):
        yield folder


def ask(job, **options):
    return api.analyse(api.open(job, cache=False), "collectives", **options)


@pytest.mark.slow
def test_the_whole_capture_unless_asked(job):
    whole = ask(job).rows
    parts = [ask(job, anchor=r"^step \d+$", index=k).rows for k in range(3)]
    assert sum(p.height for p in parts) == whole.height
    assert pl.concat(parts).select("group", "seq").n_unique() == whole.height


def test_a_span_of_gpu_time(job):
    whole = ask(job)
    window = whole.window[0]
    middle = (window["gpu_start_ns"] + window["gpu_end_ns"]) // 2
    early = ask(job, start=0, end=middle).rows
    assert 0 < early.height < whole.rows.height


@pytest.mark.slow
def test_by_group_sums_up_the_same(job):
    whole = ask(job).rows
    for by in ("group", "op", "size"):
        rows = ask(job, by=by).rows
        assert rows["n"].sum() == whole.height and rows["transfer_ns"].sum() == whole["transfer_ns"].sum()
    assert rows["peak_pct"].null_count() == rows.height
    with pytest.raises(BadInput, match="--peak-gbps"):
        ask(job, peak_gbps=0.0)


def test_on_the_command_line(job, capsys):
    assert run(["stragglers", str(job), "--no-cache", "--jobs", "1", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["command"] == "stragglers" and len(told["rows"]) == 4 and told["summary"]["stragglers"] == []
    assert run(["clocks", str(job), "--no-cache", "--jobs", "0"]) == 2
    assert "--jobs 0" in capsys.readouterr().err


def test_one_rank_has_nothing_to_compare_with(job, capsys):
    assert run(["collectives", str(job), "--no-cache", "--rank", "0", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["max_wait_ns"] for row in told["rows"]} == {None}
    assert any("lack a rank" in n for n in told["notes"])


def test_without_communication_it_says_so(capsys, shared):
    assert run(["collectives", str(shared / "traces/h200/train/eager.sqlite"), "--no-cache"]) == 3
    assert "no communication" in capsys.readouterr().err

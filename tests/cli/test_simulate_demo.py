"""The commands that make traces: what they write, what they refuse, and that the tour says true things."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import stepscope as package
from stepscope.cli.commands import demo
from stepscope.cli.main import run

SMALL = ("--schedule", "ddp", "--pp", "1", "--ep", "1", "--dp", "2", "--steps", "2", "--layers", "2")


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = run([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return status, out, err

    return call


def test_simulate_writes_what_it_says(call, tmp_path: Path):
    status, out, err = call("simulate", *SMALL, "--write", "nsys,kineto", "-o", tmp_path / "job")
    assert (status, err) == (0, "")
    written = {p.name for p in (tmp_path / "job").iterdir()}
    assert written == {"node0.sqlite", "rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz", "truth.json"}
    assert out.startswith("2 ranks on 1 node, ddp dp=2\n")
    assert all(name in out for name in written)
    scenario = json.loads((tmp_path / "job" / "truth.json").read_text())["scenario"]
    assert (scenario["dp"], scenario["world"]) == (2, 2)


def test_both_formats_tell_the_same_ranks(call, tmp_path: Path):
    call("simulate", *SMALL, "--write", "nsys,kineto", "-o", tmp_path)
    _, nsys, _ = call("setup", tmp_path / "*.sqlite", "--format", "csv", "--no-cache")
    _, kineto, _ = call("setup", tmp_path / "*.json.gz", "--format", "csv", "--no-cache")
    ranks = [[line.split(",")[0] for line in text.splitlines()[1:]] for text in (nsys, kineto)]
    assert ranks == [["0", "1"], ["0", "1"]]


def test_simulate_leaves_no_traces_of_another_job_beside_its_truth(call, tmp_path: Path):
    (tmp_path / "rank7.pt.trace.json.gz").touch()
    status, out, err = call("simulate", *SMALL, "-o", tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "holds rank7.pt.trace.json.gz, of another job" in err
    assert [p.name for p in tmp_path.iterdir()] == ["rank7.pt.trace.json.gz"]


def test_simulate_refuses_a_folder_that_cannot_be(call, tmp_path: Path):
    (tmp_path / "file").touch()
    status, out, err = call("simulate", *SMALL, "-o", tmp_path / "file" / "job")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "cannot be made" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--write", "perfetto"], "--write perfetto"),
        (["--write", ","], "give nsys or kineto"),
        (["--schedule", "gpipe"], "give one of dualpipev"),
        (["--fault", "gremlin"], "there are alloc"),
        (["--fault", "straggler:rank=99"], "rank 99"),
        (["--pp", "0"], "--pp 0"),
    ],
)
def test_simulate_refuses_in_one_line(call, tmp_path: Path, arguments, says):
    status, out, err = call("simulate", *arguments, "-o", tmp_path / "job")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (tmp_path / "job").exists()


def test_simulate_needs_a_directory(call, tmp_path: Path):
    (tmp_path / "file").touch()
    assert call("simulate", "-o", tmp_path / "file")[0] == 2
    assert call("simulate")[0] == 2


@pytest.mark.slow
def test_the_tour_says_true_things(call, tmp_path: Path):
    status, out, err = call("demo", "--keep", tmp_path)
    assert (status, err) == (0, "")
    assert all(f"$ stepscope {step.command} " in out for step in demo.STEPS)
    assert len(demo.JOB.faults) == 2
    assert demo.JOB.world == 8
    p = package.open(tmp_path / "*.sqlite", cache=False)
    rows = {row["rank"]: row for row in p.breakdown().rows.to_dicts()}
    assert rows[3]["idle_pct"] == pytest.approx(20, abs=2)
    assert all(rows[r]["comm_exposed_pct"] > 35 for r in (0, 1, 2))
    assert rows[5]["compute_ns"] > 1.15 * max(rows[r]["compute_ns"] for r in (4, 6, 7))
    causes = p.idle(by="cause", rank=3).rows.sort("total_ns", descending=True)
    assert causes["cause"][0] == "host"
    overlap = p.overlap(rank="0,3").rows
    waits = {r: overlap.filter(pl.col("rank") == r)["barrier_ns"].sum() for r in (0, 3)}
    assert waits[0] > waits[3] + 25e6
    assert p.critical_path(by="rank").rows["rank"][:2].to_list() == [5, 3]
    assert p.stragglers().summary["stragglers"][0]["cause"] == "data"
    assert p.diagnose().rows.select("id", "cause").rows() == [("data-stall", "certain"), ("straggler", "likely")]
    kept = re.findall(r"diagnose promised ([\d.]+) ms a step, taking it away gives ([\d.]+) ms", out)
    assert len(kept) == 2
    for promised, gained in kept:
        assert float(promised) == pytest.approx(float(gained), rel=0.02)

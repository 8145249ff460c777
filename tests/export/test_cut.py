"""Cuts: the chosen step gives the figures that it has in the whole capture, and the file is small."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

from exports import h200, job
from marks import slow_unless
from stepscope import api
from stepscope.cli.main import run

_LENGTHS = ("rank", "window_ns", "compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns", "comm_hidden_ns")


def _label(profile: api.Profile, index: int) -> str:
    label: str = profile.window(index=index).rows["label"][0]
    return label


@pytest.mark.parametrize("ending", slow_unless(".parquet".__eq__, [".pftrace", ".json", ".parquet"]))
def test_a_step_of_a_cut_is_the_step_of_the_whole(ending, tmp_path):
    whole = api.open(job(tmp_path / "job", steps=4), cache=False)
    whole.export(tmp_path / f"whole{ending}", findings=False)
    made = whole.export(tmp_path / f"step{ending}", step=True, index=2)
    cut = api.open(tmp_path / f"step{ending}", cache=False)
    label = _label(whole, 2)
    there = cut.window(index="all").rows.filter(pl.col("label") == label)["index"].unique().to_list()
    assert len(there) == 1
    assert cut.breakdown(index=there[0]).rows.select(_LENGTHS).equals(whole.breakdown(index=2).rows.select(_LENGTHS))
    exposed = ["rank", "stage", "n", "comm_ns", "exposed_ns", "exposed_wall_ns", "barrier_ns"]
    assert cut.overlap(index=there[0]).rows.select(exposed).equals(whole.overlap(index=2).rows.select(exposed))
    assert cut.ops.height < whole.ops.height / 2
    every = api.open(tmp_path / f"whole{ending}", cache=False).ops.height
    assert made.events < every * 10 and cut.ops.height < every


def test_a_call_and_what_it_launched_stay_together(tmp_path):
    whole = api.open(job(tmp_path / "job", steps=3), cache=False)
    whole.export(tmp_path / "step.pftrace", step=True, index=1, findings=False)
    cut = api.open(tmp_path / "step.pftrace", cache=False)
    assert cut.ops["launch"].null_count() == 0 == whole.ops["launch"].null_count()


def test_ranks_are_chosen(tmp_path):
    whole = api.open(job(tmp_path / "job"), cache=False)
    whole.export(tmp_path / "one.pftrace", rank=3)
    assert api.open(tmp_path / "one.pftrace", cache=False).rank_ids() == [3]


def test_a_torch_trace_is_cut_as_torch_wrote_it(tmp_path):
    source = sorted(job(tmp_path / "job", "kineto", steps=4).glob("*.json*"))[0]
    whole = api.open(source, cache=False)
    made = whole.export(tmp_path / "rank0.pt.trace.json.gz", step=True, index=2)
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    before = [json.dumps(e, sort_keys=True) for e in json.loads(raw)["traceEvents"]]
    data = json.loads(gzip.decompress((tmp_path / "rank0.pt.trace.json.gz").read_bytes()))
    after = [json.dumps(e, sort_keys=True) for e in data["traceEvents"]]
    assert set(after) < set(before) and len(after) == made.events < len(before) * 0.7
    assert data["distributedInfo"] == json.loads(raw)["distributedInfo"]
    cut = api.open(tmp_path / "rank0.pt.trace.json.gz", cache=False)
    label = _label(whole, 2)
    there = cut.window(index="all").rows.filter(pl.col("label") == label)["index"][0]
    assert cut.breakdown(index=there).rows.select(_LENGTHS).equals(whole.breakdown(index=2).rows.select(_LENGTHS))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["-o", "{out}/x.docx"], 2, "names no form"),
        (["-o", "{out}/nowhere/x.pftrace"], 2, "no directory"),
        (["-o", "-"], 2, "is a file"),
        (["-o", "{out}/x.json", "--to", "kineto"], 3, "torch.profiler"),
        (["-o", "{out}/x.pftrace", "--index", "99"], 2, "--index"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, status, said, tmp_path, capsys):
    path = h200("eager", tmp_path)
    (tmp_path / "out").mkdir()
    given = [w.replace("{out}", str(tmp_path / "out")) for w in words]
    assert run(["export", str(path), *given, "--no-cache"]) == status
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, capsys):
    path = h200("eager", tmp_path)
    (tmp_path / "mine.parquet").mkdir()
    (tmp_path / "mine.parquet" / "notes.txt").write_text("keep")
    assert run(["export", str(path), "-o", str(tmp_path / "mine.parquet"), "--no-cache"]) == 2
    assert (
        tmp_path / "mine.parquet" / "notes.txt"
    ).read_text() == "keep" and "not an export" in capsys.readouterr().err


def test_an_input_is_not_written_over(tmp_path, capsys):
    path = h200("eager", tmp_path)
    before = path.read_bytes()
    assert run(["export", str(path), "-o", str(path), "--to", "perfetto", "--no-cache"]) == 2
    assert path.read_bytes() == before and "is one of the inputs" in capsys.readouterr().err

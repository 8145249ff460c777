"""What Python users have beyond questions: lists of files, both sides of a comparison, nsys's answers, the report."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope import api
from stepscope.errors import extra
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

JOB = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 1, "steps": 8, "jitter": 0.02}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a` and `b` are runs of one job, in `slow` all ranks compute 1.3 times as long; `apart` has a file per rank."""
    root = tmp_path_factory.mktemp("traces")
    slow = tuple(f"straggler:rank={rank},factor=1.3" for rank in range(2))
    for name, seed, faults in (("a", 1, ()), ("b", 2, ()), ("slow", 3, slow)):
        simulate_to(Scenario(**JOB, seed=seed, faults=faults), root / name, ("nsys",))
    simulate_to(Scenario(**JOB), root / "apart", ("kineto",))
    return root


@pytest.fixture(scope="module")
def profiles(traces: Path) -> dict[str, stepscope.Profile]:
    return {name: stepscope.open(traces / name) for name in ("a", "b", "slow")}


def test_files_may_be_a_list(traces):
    files = sorted((traces / "apart").glob("*.gz"))
    assert len(files) == 2
    for opened in (stepscope.open(files), stepscope.open(*files), stepscope.open(map(str, files))):
        assert opened.ranks["rank"].to_list() == [0, 1]
    with pytest.raises(stepscope.BadInput, match="no profile given"):
        stepscope.open([])


def test_base_and_new_are_the_same_way_round(profiles, traces):
    a, slow = profiles["a"], profiles["slow"]
    ways = [
        api.compare(a, slow),
        api.compare(base=traces / "a", new=traces / "slow"),
        a.compare(slow),
        a.compare(new=slow),
        slow.compare(base=a),
    ]
    assert {way.summary["verdict"] for way in ways} == {"slower"}
    assert all(way.rows.equals(ways[0].rows) for way in ways)
    with pytest.raises(TypeError, match="base=, or new="):
        a.compare()
    with pytest.raises(TypeError, match="base=, or new="):
        a.gate(base=slow, new=slow)


def test_the_gate_too(profiles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b, slow = profiles["a"], profiles["b"], profiles["slow"]
    assert api.save_baseline(a, "main") == Path(".stepscope/baselines/main.json")
    for asked in (lambda new: api.gate(a, new), lambda new: new.gate(base=a), lambda new: a.gate(new=new)):
        assert asked(b).summary["pass"] is True
        with pytest.raises(stepscope.GateFailed, match=r"step: \+2"):
            asked(slow)
    with pytest.raises(stepscope.GateFailed, match=r"step: \+2") as failed:
        api.gate(base="main", new=slow)
    assert "failed" in failed.value.result._repr_html_()
    assert api.gate(base="main", new=b).summary["pass"] is True
    assert b.compare(base="main").summary["verdict"] == "no difference"


def test_what_nsys_answers(profiles):
    a = profiles["a"]
    kernels = a.stats("cuda_gpu_kern_sum", base=True)
    assert kernels.command == "stats cuda_gpu_kern_sum"
    assert kernels.rows["Total Time (ns)"].is_sorted(descending=True)
    assert kernels.rows.equals(a.stats("cuda_gpu_kern_sum:base").rows)
    part = a.stats("cuda_gpu_kern_sum", base=True, start="0.02s", end=30_000_000, rank=0).rows
    assert 0 < part["Instances"].sum() < kernels.rows["Instances"].sum()
    assert a.rules("gpu_gaps", gap="1us").rows.height > 0
    every, one = a.recipe("nccl_sum"), a.recipe("nccl_sum", table="rank_stats", rank=1)
    assert every.rows.height == 1 and one.rows["rank"].unique().to_list() == [1]
    assert every.window[0]["label"] == "whole capture"
    with pytest.raises(stepscope.BadInput, match="did you mean nccl_sum"):
        a.recipe("nccl-sums")
    with pytest.raises(stepscope.BadInput, match="did you mean rank_stats"):
        a.recipe("nccl_sum", table="rank_stat")


def test_the_report(profiles, tmp_path):
    page = profiles["slow"].report(rank="0")
    assert page.save(tmp_path / "report.md").read_text("utf-8") == page.markdown
    assert page.save(tmp_path / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert "--rank 0" in page.markdown
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    profiles["slow"].report(tmp_path / "other.md", index=1)
    assert "--index 1" in (tmp_path / "other.md").read_text("utf-8")
    with pytest.raises(stepscope.BadInput, match=r"end it in \.html or \.md"):
        page.save(tmp_path / "report.pdf")


def test_notebooks_show_units_window_statement_and_ranks(profiles):
    result = profiles["a"].breakdown(index=2)
    shown = result._repr_html_()
    assert "window: step 2 (#2 of 8) on ranks 0-1" in shown
    assert f"<b>{result.summary['statement']}</b>" in shown
    assert re.search(r">\d+\.\d%</td>", shown) and re.search(r">\d+\.\d+ ms</td>", shown)
    assert "<b>Profile</b> of 2 ranks: node0.sqlite" in profiles["a"]._repr_html_()
    assert profiles["a"]._repr_html_().count("NVIDIA H200") == 2
    assert "base: step 1" in profiles["a"].compare(profiles["b"])._repr_html_()


def test_a_prompt_shows_what_the_command_prints(profiles):
    result = profiles["a"].breakdown(index=2)
    assert repr(result) == str(result) and "window: step 2 (#2 of 8) on ranks 0-1" in repr(result)
    assert result.statement == result.summary["statement"]
    assert profiles["a"].setup().statement is None
    assert ".save('report.html')" in repr(profiles["a"].report()) and ".save('picture.svg')" in repr(result.plot())


def test_what_is_asked_of_the_package_is_a_method_of_a_profile(profiles):
    assert set(stepscope._OF_PROFILES) <= set(dir(profiles["a"]))
    with pytest.raises(AttributeError, match=r"stepscope\.open\(PATH\)\.diagnose"):
        _ = stepscope.diagnose
    with pytest.raises(stepscope.BadInput, match=r"did you mean fault|there are fault"):
        stepscope.simulate(faults=["straggler:rank=1"])


def test_what_is_shown_is_escaped(profiles):
    result = profiles["a"].setup()
    result.rows = result.rows.with_columns(host=result.rows["host"] + "<script>")
    assert "<script>" not in result._repr_html_() and "&lt;script&gt;" in result._repr_html_()


def test_notebooks_complete_options(profiles):
    signature = inspect.signature(profiles["a"].overlap)
    assert signature.parameters["by"].default == "stage"
    assert signature.parameters["index"].default == "median"
    assert {"rank", "start", "sort"} <= set(signature.parameters)
    assert {"stats", "recipe", "report", "compare", "gate", "sql"} <= set(dir(profiles["a"]))


def test_a_name_that_is_nearly_right_is_named(profiles):
    with pytest.raises(AttributeError, match="did you mean overlap"):
        _ = profiles["a"].overlp
    with pytest.raises(TypeError, match="did you mean anchor"):
        profiles["a"].window(ancor="step")
    with pytest.raises(stepscope.BadInput, match="did you mean compute_ns"):
        profiles["a"].breakdown(sort="compute")


def test_pandas_is_named_where_it_is_missing(profiles, monkeypatch):
    result = profiles["a"].setup()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(stepscope.BadInput, match=re.escape(extra("pandas"))):
            result.to_pandas()
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert result.to_pandas()["rank"].tolist() == [0, 1]

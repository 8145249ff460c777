"""`stepscope recipe`: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from stepscope.cli.main import run
from stepscope.nsys import recipes


@pytest.fixture
def ask(capfd):
    """Run a command line: status, output, errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = run(["recipe", *map(str, arguments)])
        return status, *capfd.readouterr()

    return call


class Page(HTMLParser):
    """Tags that are open, and everything that would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href", "srcset", "data", "action")]
        if tag not in ("meta", "line", "rect/", "polyline/"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


OPTIONS = {"nvtx_pace": ["--name", "layer00.stage1_f"], "gpu_gaps": ["--gap", "1"]}
#: Rules that have nothing to say about the trace.
NOTHING_FOUND = ("cuda_memcpy_sync", "cuda_memset_sync")
ANSWERED = [n for n in recipes.recipes() if n not in ("diff", "osrt_sum", "mpi_sum") and "metric" not in n]


@pytest.mark.parametrize("name", [n for n in ANSWERED if n not in ("nvlink_sum", "network_sum")])
def test_every_recipe_writes_data_and_a_page(ask, trace, tmp_path, name):
    folder = tmp_path / "out"
    status, out, _ = ask(name, trace("payloads/overlapped"), *OPTIONS.get(name, []), "-o", folder)
    assert status == 0 and f"{folder}/analysis.html" in out
    text = (folder / "analysis.html").read_text("utf-8")
    page = Page(text)
    assert page.open == [] and page.fetched == [] and "script" not in page.tags and "link" not in page.tags
    assert not re.search(r"@import|url\(", text)
    if name in NOTHING_FOUND:
        assert "nothing found on 4 of 4 ranks" in text
    else:
        assert page.tags["svg"] >= 1 and page.tags["title"] > 1
    assert page.tags["table"] >= 1
    assert "prefers-color-scheme:dark" in text and f"stepscope recipe {name}" in text
    about = json.loads((folder / "recipe.json").read_text())
    assert about["recipe"] == name
    for file in folder.glob("*.parquet"):
        assert pl.read_parquet(file).height == len(pl.read_csv(file.with_suffix(".csv"), infer_schema_length=None))
    assert (folder / f"{about['table']}.parquet").exists()


def test_files_have_the_columns_of_nsys(ask, trace, tmp_path):
    ask("cuda_gpu_kern_sum", trace("train/eager"), "-o", tmp_path / "k")
    figures = ["Time", "Total Time", "Instances", "Avg", "Q1", "Med", "Q3", "Min", "Max", "StdDev"]
    assert pl.read_parquet(tmp_path / "k" / "all_stats.parquet").columns[1:11] == figures


def test_times_count_from_the_captures_beginning(ask, trace):
    """It begins at 131,945,224 ns on the trace's clock, which a plain number means, as it does in nsys."""
    kernels = ("cuda_gpu_kern_sum", trace("train/eager"), "--format", "csv")
    answer = ask(*kernels, "--start", "10ms", "--end", "30ms")
    assert answer[0] == 0 and len(answer[1].splitlines()) > 3
    for times in (("@141.945224ms", "@161.945224ms"), ("141945224", "161945224")):
        assert ask(*kernels, "--start", times[0], "--end", times[1]) == answer
    whole = ask(*kernels)[1]
    assert answer[1] != whole == ask(*kernels, "--start", "0ms", "--end", "1s")[1]


@pytest.mark.parametrize("times", [("--start", "500s", "--end", "600s"), ("--end", "@1ms"), ("--start", "9s")])
def test_a_window_outside_the_capture_is_refused(ask, trace, times):
    status, out, err = ask("cuda_gpu_kern_sum", trace("train/eager"), *times)
    assert (status, out) == (2, "")
    assert "outside the capture, which lasts 434.4 ms; give times from its beginning" in err


def test_a_folder_is_not_written_over(ask, trace, tmp_path):
    folder = tmp_path / "out"
    assert ask("cuda_api_sum", trace("train/eager"), "-o", folder)[0] == 0
    status, _, err = ask("cuda_api_sum", trace("train/eager"), "-o", folder)
    assert status == 2 and "--force" in err
    assert ask("cuda_api_sum", trace("train/eager"), "-o", folder, "--force")[0] == 0
    (tmp_path / "file").write_text("")
    assert ask("cuda_api_sum", trace("train/eager"), "-o", tmp_path / "file")[0] == 2
    assert ask("cuda_api_sum", trace("train/eager"), "-o", tmp_path / "no" / "where")[0] == 2


def test_without_a_name_a_new_folder_each_time(ask, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n in (1, 2):
        status, out, _ = ask("cuda_api_sum", trace("train/eager"), "-o")
        assert status == 0 and out.startswith(f"cuda_api_sum-{n}/analysis.html")


def test_as_nsys_spells_it(ask, trace, tmp_path):
    """Nothing but the command's name changes."""
    folder = tmp_path / "out"
    eager, slow = trace("train/eager"), trace("train/slow_dataloader")
    arguments = ["--input", eager, slow, "--output", folder, "--force-overwrite", "--csv", "--mode", "none"]
    assert ask("cuda_gpu_kern_sum", *arguments)[0] == 0
    assert pl.read_csv(folder / "rank_stats.csv")["Rank"].n_unique() == 2


@pytest.mark.parametrize("format", ["json", "csv", "md", "table"])
def test_on_standard_output_in_every_format(ask, trace, format):
    status, out, _ = ask("nccl_sum", trace("payloads/overlapped"), "--format", format)
    assert status == 0 and "ncclAllReduce" in out
    if format == "json":
        answer = json.loads(out)
        assert answer["command"] == "recipe nccl_sum" and answer["profile"]["ranks"] == 4
        assert [w["rank"] for w in answer["window"]] == [0, 1, 2, 3]
        assert {"name", "total_ns", "n", "q1_ns", "bytes"} <= set(answer["rows"][0])


def test_another_table_and_some_ranks(ask, trace):
    path = trace("payloads/overlapped")
    status, out, _ = ask("nccl_sum", path, "--table", "rank_stats", "--rank", "1,3", "--format", "csv")
    assert status == 0 and {line.split(",")[0] for line in out.splitlines()[1:]} == {"1", "3"}
    status, _, err = ask("nccl_sum", path, "--table", "x")
    assert status == 2 and "all_stats, rank_stats" in err


def test_diff_of_outputs_and_of_profiles(ask, trace, tmp_path):
    eager, slow = trace("train/eager"), trace("train/slow_dataloader")
    for path, name in ((eager, "a"), (slow, "b")):
        ask("cuda_gpu_kern_sum", path, "-o", tmp_path / name)
    outputs = ask("diff", tmp_path / "a", tmp_path / "b", "--format", "csv")
    profiles = ask("diff", eager, slow, "--format", "csv")
    assert outputs[0] == 0 and outputs[1] == profiles[1]
    assert outputs[1].splitlines()[0].startswith("name,only,total_before_ns,total_after_ns,total_delta_ns")
    same = ask("diff", tmp_path / "a", tmp_path / "a", "--drop", "--format", "csv")
    assert same[0] == 0 and len(same[1].splitlines()) == 1


def test_diff_refuses_what_cannot_be_compared(ask, trace, tmp_path):
    eager = trace("train/eager")
    ask("cuda_gpu_kern_sum", eager, "-o", tmp_path / "a")
    ask("nvtx_sum", eager, "-o", tmp_path / "b")
    assert ask("diff", tmp_path / "a", tmp_path / "b")[0] == 2
    assert ask("diff", tmp_path / "a")[0] == 2
    assert ask("diff", eager, eager, "--recipe", "gpu_gaps")[0] == 2


def test_what_is_missing_is_status_3(ask, trace):
    status, _, err = ask("osrt_sum", trace("train/eager"))
    assert status == 3 and "capture run --with osrt" in err
    status, _, err = ask("gpu_metric_util_map", trace("train/eager"))
    assert status == 3 and "--gpu-metrics" in err


def test_bad_usage_is_status_2(ask, trace):
    assert ask("cuda_gpu_kern_summ", trace("train/eager"))[0] == 2
    assert ask("cuda_gpu_kern_sum")[0] == 2
    status, _, err = ask("cuda_gpu_kern_sum", trace("train/eager"), "--bins", "3")
    assert status == 2 and "no option --bins" in err
    assert ask("cuda_gpu_time_util_map", trace("train/eager"), "--bins", "0")[0] == 2
    assert ask("gpu_metric_util_sum", trace("train/eager"), "--metric", "(")[0] in (2, 3)


def test_help_lists_and_explains(ask):
    for arguments in ([], ["--help-recipes"]):
        status, out, _ = ask(*arguments)
        assert status == 0 and all(name in out for name in recipes.recipes())
    status, out, _ = ask("--help-recipes", "nvtx_pace")
    assert status == 0 and "--name" in out


def test_options_of_recipes_are_options_of_the_command():
    from stepscope.cli.commands.recipe import Arguments

    declared = {a.name for r in recipes.recipes().values() for a in r.all_args}
    assert declared == set(Arguments.__annotations__)


def test_torch_traces_say_what_they_lack(ask, shared):
    traces = sorted((shared / "traces" / "h200" / "moe4mps").glob("*.pt.trace.json.gz"))
    status, out, _ = ask("nccl_sum", *traces, "--format", "json")
    answer = json.loads(out)
    assert status == 0 and answer["profile"]["ranks"] == 4
    assert any("torch" in note for note in answer["notes"])
    assert sum(row["n"] for row in answer["rows"]) > 0


def test_eight_ranks_of_a_job(ask, shared):
    files = sorted(Path(shared, "traces", "public", "dlrm8", "dlrm_kineto").glob("*.json"))
    status, out, _ = ask("nccl_gpu_time_util_map", *files, "--format", "json", "--bins", "20")
    assert status == 0 and len(json.loads(out)["rows"]) == 8

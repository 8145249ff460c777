"""`stats` and `rules` on the command line: what is asked for, where it goes, what cannot be answered."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stepscope.cli.main import run
from stepscope.nsys.reports import DEFAULT_REPORTS, all_rules, reports
from stepscope.nsys.reports.registry import ALIASES


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


@pytest.fixture
def stepscope(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def call(*arguments: object) -> Ran:
        status = run([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return call


@pytest.fixture
def eager(unpacked):
    return unpacked("eager")


def test_html_as_nsys_writes_it(stepscope, eager):
    """By hand of nsys 2023.4.4's own output: a document, a heading with the report's name, cells one a line."""
    page = stepscope("stats", "-q", "-r", "cuda_gpu_kern_sum", "-f", "hdoc:title=a<b:css=y.css", eager).out
    assert page.startswith(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n  <meta charset="UTF-8">\n  <title>a&lt;b</title>\n'
        '  <link rel="stylesheet" href="y.css">\n</head>\n<body>\n'
        "<h1>CUDA GPU Kernel Summary (cuda_gpu_kern_sum)</h1>\n<table>\n  <thead>\n    <tr>\n      <th>Time (%)</th>\n"
    )
    assert page.rstrip().endswith("    </tr>\n  </tbody>\n</table>\n</body>\n</html>")
    assert "reduce_kernel&lt;(int)128" in page and "reduce_kernel<" not in page
    bare = stepscope("stats", "-q", "-r", "cuda_gpu_kern_sum", "-f", "htable", eager).out
    assert bare.rstrip() in page and bare.startswith("<table>\n")


def test_several_reports_each_with_its_format(stepscope, eager):
    ran = stepscope("stats", "-r", "cuda_gpu_mem_size_sum,cuda_api_sum", "-f", "json,csv", eager)
    first, second = ran.out.split("]\n\n")
    assert json.loads(first + "]")[0]["Operation"] == "[CUDA memcpy Device-to-Device]"
    assert next(csv.reader(io.StringIO(second)))[-1] == "Name"
    assert ran.status == 0


def test_old_names(stepscope, eager):
    today = stepscope("stats", "-r", "cuda_gpu_kern_sum", "-f", "csv", eager)
    assert stepscope("stats", "-r", "gpukernsum", "-f", "csv", eager).out == today.out
    assert set(ALIASES.values()) <= {*reports(), *all_rules()}


def test_default_reports_skip_what_is_not_there(stepscope, eager):
    ran = stepscope("stats", eager)
    assert ran.status == 0
    assert "** NVTX Range Summary (nvtx_sum):" in ran.out
    assert "stepscope: skipped osrt_sum: the profile has no OS runtime calls" in ran.err
    assert set(DEFAULT_REPORTS) <= set(reports())


def test_nothing_to_answer_with(stepscope, eager):
    ran = stepscope("stats", "-r", "um_sum", eager)
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-r", "cuda_gpu_kern"], "did you mean cuda_gpu_kern_sum?"),
        (["-r", "cuda_gpu_kern_sum:rows=3"], "no argument 'rows'"),
        (["-r", "cuda_gpu_kern_sum:base=1"], "takes no value"),
        (["-r", "um_sum:rows=x"], "not a whole number"),
        (["-r", "cuda_api_sum", "-f", "xml"], "no such format"),
        (["-r", "cuda_api_sum", "-f", "csv:mem=ns"], "no unit 'ns'"),
        (["-r", "cuda_api_sum", "--timeunit", "weeks"], "no such unit"),
        (["-r", "cuda_api_sum", "--filter-time", "later"], "--filter-time"),
        (["-r", "cuda_api_sum", "--filter-nvtx", "nowhere"], "no NVTX range 'nowhere'"),
        (["-r", "cuda_api_sum", "-o", "/proc/nonexistent/base"], "make it first"),
        (["-r", "cuda_api_sum", "-o", "@nonexistent-command"], "cannot run it"),
    ],
)
def test_bad_usage(stepscope, eager, arguments, said):
    ran = stepscope("stats", *arguments, eager)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_files(stepscope, eager, tmp_path):
    base = tmp_path / "run"
    ran = stepscope("stats", "-r", "cuda_api_sum,cuda_gpu_kern_sum:base", "-f", ".,tsv", "-o", base, eager)
    assert (ran.status, ran.out) == (0, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run_cuda_api_sum.csv", "run_cuda_gpu_kern_sum_base.tsv"]
    again = stepscope("stats", "-r", "cuda_api_sum", "-o", base, eager)
    assert again.status == 2
    assert "--force-overwrite" in again.err
    assert stepscope("stats", "-r", "cuda_api_sum", "-o", base, "--force-overwrite", "true", eager).status == 0


def test_into_a_command(stepscope, eager):
    ran = stepscope("stats", "-r", "cuda_api_sum", "-o", "@grep cudaMemcpyAsync", eager)
    assert ran.out.count("\n") == 1


def test_whole_graphs_and_what_was_left_out_are_said(stepscope, shared):
    graphs = shared / "traces/public/a100_cuda_graphs.sqlite"
    ran = stepscope("rules", "-r", "gpu_gaps,cuda_api_sync", graphs)
    assert (
        ran.err == "stepscope: gpu_gaps: 10 CUDA graphs recorded whole are left out, as in nsys: the GPU looks idle\n"
    )
    ran = stepscope("stats", "-r", "cuda_api_sum", shared / "traces/h200/payloads/overlapped.sqlite")
    assert ran.err == "stepscope: CUPTI_ACTIVITY_KIND_RUNTIME: left out 1 row of processes that are not ranks\n"


def test_help_lists_and_explains(stepscope):
    assert stepscope("stats", "--help-reports").out.count("\n") == len(reports())
    assert ":nvtx-name" in stepscope("stats", "--help-reports", "cuda_gpu_kern_sum").out
    assert stepscope("rules", "--help-rules", "ALL").out.count(" -- ") == len(all_rules())


def test_all_rules_with_advice(stepscope, eager):
    ran = stepscope("rules", "-r", "all", eager)
    assert ran.status == 0
    assert ran.out.count(" ** ") == len(all_rules()) == 6
    assert "pin_memory=True" in ran.out
    assert "Nothing found." in ran.out


def test_a_rule_says_when_it_stops(stepscope, eager):
    assert "Only the first 2 are shown" in stepscope("rules", "-r", "cuda_api_sync:rows=2", eager).out
    assert "Only the first" not in stepscope("rules", "-r", "cuda_api_sync:rows=2", "-f", "csv", eager).out


def test_every_report_of_the_issue_is_there():
    assert len(reports()) == 28
    assert all(r.doc and r.title for r in (*reports().values(), *all_rules().values()))
    assert all(r.advice for r in all_rules().values())

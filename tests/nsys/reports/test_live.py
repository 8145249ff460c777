"""The real nsys beside ours, byte by byte: formats, units, arguments, parts, and traces that no golden has."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from other_traces import UM_GONE, only, without

from stepscope.cli.main import run

VERSION = "2023.4.4"


def _nsys_is_the_one_compared_with() -> bool:
    if shutil.which("nsys") is None:
        return False
    return VERSION in subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=False).stdout


pytestmark = pytest.mark.skipif(not _nsys_is_the_one_compared_with(), reason=f"nsys {VERSION} is not installed")

Compare = Callable[..., None]

OTHER = "mpi_event_trace openmp_sum openacc_sum um_sum um_sum:rows=3 um_total_sum um_cpu_page_faults_sum osrt_sum"


@pytest.fixture
def compare(capfd: pytest.CaptureFixture[str]) -> Compare:
    def same(command: str, path: Path, *options: str) -> None:
        theirs, ours = ("stats", "stats") if command == "stats" else ("analyze", "rules")
        real = ["nsys", theirs, "-q", "--force-export=false", *options, str(path)]
        expected = subprocess.run(real, capture_output=True, check=True).stdout.decode()
        assert run([ours, "-q", *options, "--no-cache", str(path)]) == 0
        assert capfd.readouterr().out == expected

    return same


@pytest.mark.slow
@pytest.mark.parametrize(
    "format",
    [
        "column",
        "table",
        "tsv",
        "json",
        "csv:mem=KiB:thru=GB",
        "csv:noconv:nohdr",
        "htable:dur=us",
        "hdoc:title=A B:css=y.css",
    ],
)
def test_formats(compare, unpacked, format):
    compare("stats", unpacked("eager"), "-r", "cuda_gpu_trace", "--format", format)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["us", "msec", "sec"])
def test_time_units(compare, unpacked, unit):
    compare("stats", unpacked("eager"), "-r", "cuda_kern_exec_trace", "--format", "csv", "--timeunit", unit)


@pytest.mark.slow
@pytest.mark.parametrize("report", ["cuda_gpu_kern_sum:base", "cuda_gpu_sum:mangled", "cuda_kern_exec_sum:nvtx-name"])
def test_names(compare, unpacked, report):
    compare("stats", unpacked("eager"), "-r", report, "--format", "csv")


@pytest.mark.slow
@pytest.mark.parametrize("part", [("--filter-time", "0.2s/400ms"), ("--filter-nvtx", "forward/1")])
@pytest.mark.parametrize("report", ["cuda_gpu_kern_sum", "nvtx_kern_sum", "nvtx_pushpop_trace", "cuda_api_sum"])
def test_parts(compare, unpacked, report, part):
    compare("stats", unpacked("eager"), "-r", report, "--format", "csv", *part)


@pytest.mark.slow
@pytest.mark.parametrize("report", OTHER.split())
def test_other_traces(compare, other_traces, report):
    compare("stats", other_traces, "-r", report, "--format", "csv")


@pytest.mark.slow
@pytest.mark.parametrize("report", ["um_sum:rows=-1", "um_total_sum"])
@pytest.mark.parametrize("gone", UM_GONE)
def test_unified_memory_in_part(compare, other_traces, tmp_path, gone, report):
    compare("stats", without(other_traces, tmp_path, UM_GONE[gone]), "-r", report, "--format", "csv")


@pytest.mark.slow
def test_os_runtime_alone(compare, other_traces, tmp_path):
    compare("stats", only(other_traces, tmp_path, "OSRT_API"), "-r", "osrt_sum", "--format", "csv")


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    ["gpu_gaps:gap=1:rows=-1", "gpu_time_util:chunks=100:threshold=90", "cuda_api_sync:rows=3", "cuda_memcpy_async"],
)
def test_rules(compare, unpacked, rule):
    compare("rules", unpacked("eager"), "-r", rule, "--format", "csv")

"""The same program through another file format gives the same report, as far as that format reaches."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from stepscope import api
from stepscope.nsys import reports as nsysreports
from stepscope.nsys.reports import Asker, formats, reports
from stepscope.nsys.reports.registry import find
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

SUMS = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_gpu_sum", "cuda_api_sum")
#: Kineto keeps API names as CUDA documents them; nsys adds the version of the entry point.
VERSIONED = r"_v\d+$"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    simulate_to(Scenario(schedule="ddp", pp=1, dp=2, ep=1, layers=2, steps=2, seed=5), folder, ("nsys", "kineto"))
    return folder


@pytest.mark.parametrize("name", SUMS)
def test_a_torch_trace_sums_as_nsys_does(job: Path, name: str) -> None:
    import polars as pl

    nsys, kineto = (
        nsysreports.report(api.open(str(job / pattern), cache=False), name) for pattern in ("*.sqlite", "*.json.gz")
    )
    assert nsys.height == kineto.height > 0
    label = nsys.columns[-1] if name != "cuda_gpu_sum" else "Operation"
    plain = [
        f.with_columns(pl.col(label).cast(pl.String).str.replace(VERSIONED, "")).sort(f.columns) for f in (nsys, kineto)
    ]
    assert_frame_equal(plain[0], plain[1], check_row_order=False, rel_tol=1e-9)


@pytest.mark.parametrize("format", [f for f in formats.SUFFIXES if f != "md"])
def test_rows_that_are_written_in_parts_are_written_as_they_are(
    job: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Headers once, separators between parts, widths of them all."""
    answer = Asker(api.open(job / "node0.sqlite", cache=False)).ask(*find("cuda_gpu_trace", reports()))
    spelled = [formats.parse_format(f"{format}{more}") for more in ("", ":nohdr", ":autolines=0")]
    whole = [formats.render(answer, each) for each in spelled]
    monkeypatch.setattr(formats, "_AT_ONCE", 7)
    assert answer.frame.height > 21 and [formats.render(answer, each) for each in spelled] == whole


def test_what_a_torch_trace_lacks_is_said(job: Path) -> None:
    asker = Asker(api.open(str(job / "*.json.gz"), cache=False))
    assert any("torch" in note for note in asker.ask(*find("cuda_gpu_trace", reports())).notes)


@pytest.mark.parametrize("name", [*SUMS, "nvtx_sum", "nvtx_gpu_proj_sum", "cuda_kern_exec_sum", "nvtx_kern_sum"])
def test_a_parquet_export_reports_as_the_sqlite_one(shared: Path, name: str) -> None:
    folder = shared / "traces/h200/payloads"
    sqlite, parquet = (
        nsysreports.report(api.open(folder / file, cache=False), name)
        for file in ("overlapped.sqlite", "overlapped_pqtdir")
    )
    assert sqlite.height > 0
    assert_frame_equal(sqlite, parquet)

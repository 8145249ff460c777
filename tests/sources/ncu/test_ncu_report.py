"""Reports through `ncu-report`: the same as the package says, and files that it cannot read."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest

import stepscope

REPORT = "traces/h200/ncu/basic_6kernels.ncu-rep"


@pytest.fixture
def report(shared: Path) -> Path:
    pytest.importorskip("ncu_report")
    return shared / REPORT


def test_every_metric_is_what_the_package_says(report: Path) -> None:
    ncu_report = pytest.importorskip("ncu_report")
    profile = stepscope.open(report, cache=False)
    frame, kernels = profile.table("metrics"), profile.table("measured", detail=True)
    names = profile.names
    part = ncu_report.load_report(str(report)).range_by_idx(0)
    for at in range(6):
        rows = frame.filter(pl.col("kernel") == at)
        found = dict(zip(names.gather(rows["name"]), rows["value"], strict=True))
        action = part.action_by_idx(at)
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            if metric.unit() in ("", "%", "ns", "byte", "cycle") and isinstance(metric.value(), float | int):
                assert found[name] == pytest.approx(metric.value(), rel=1e-15), name
    assert kernels.select("grid_x", "grid_y", "block_x").row(0) == (2, 66, 384)
    assert names[kernels["name"][0]] == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    assert kernels["registers"][0] == 168


def test_rules_read_as_ncu_prints_them(report: Path) -> None:
    profile = stepscope.open(report, cache=False)
    first = profile.table("advice").row(0, named=True)
    text = profile.names[first["text"]]
    assert "Start by analyzing workloads in the Compute Workload Analysis section" in text
    assert "@" not in text
    assert profile.names[first["kind"]] == "INF"


@pytest.mark.parametrize("kept", [5, 1000, 100_000, 6_000_000])
def test_a_damaged_report(report: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(report.read_bytes()[:kept])
    with pytest.raises(stepscope.BadInput, match=r"cut\.ncu-rep: .*damaged.*newer") as error:
        stepscope.open(path, cache=False)
    assert "\n" not in str(error.value)


def test_a_report_of_a_format_that_the_package_does_not_know(report: Path, tmp_path: Path) -> None:
    """The header says another size of its own: what a format of the future may well do."""
    data = report.read_bytes()
    path = tmp_path / "new.ncu-rep"
    path.write_bytes(data[:4] + b"\x7f\0\0\0" + data[8:])
    with pytest.raises(stepscope.BadInput, match="of a newer Nsight Compute"):
        stepscope.open(path, cache=False)


def test_native_code_that_crashes_is_one_line(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ncu_report"
    folder.mkdir()
    (folder / "__init__.py").write_text("import os\ndef load_report(path): os.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(stepscope.BadInput, match="fails on it"):
        stepscope.open(report, cache=False)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\0" + bytes(100))
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(stepscope.BadInput, match=r"pip install .*\[ncu\]"):
        stepscope.open(path, cache=False)


def test_a_file_that_is_only_named_like_one(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"hello")
    with pytest.raises(stepscope.BadInput, match="not a whole Nsight Compute report"):
        stepscope.open(path, cache=False)

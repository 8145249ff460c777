"""Exports that have only a part of what nsys can record: what is there is answered, as nsys does (see test_live)."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import pytest
from other_traces import UM_GONE, only, without

from stepscope import api
from stepscope.cli.main import run


def _report(path: Path, name: str, capfd: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert run(["stats", "-q", "-r", name, "--format", "csv", "--no-cache", str(path)]) == 0
    return list(csv.DictReader(capfd.readouterr().out.splitlines()))


def test_calls_of_the_os_runtime_alone(other_traces, tmp_path, capfd):
    path = only(other_traces, tmp_path, "OSRT_API")
    with sqlite3.connect(path) as db:
        count, total = db.execute("SELECT count(*), sum(end - start) FROM OSRT_API WHERE eventClass = 27").fetchone()
    db.close()
    rows = _report(path, "osrt_sum", capfd)
    assert {r["Name"] for r in rows} == {"read", "poll"}
    assert sum(int(r["Num Calls"]) for r in rows) == count and sum(int(r["Total Time (ns)"]) for r in rows) == total
    assert run(["breakdown", str(path)]) == 3  # no GPU activity: it says so


@pytest.mark.parametrize("gone", [*UM_GONE, None])
def test_totals_of_unified_memory(other_traces, tmp_path, capfd, gone):
    path = without(other_traces, tmp_path, *([UM_GONE[gone]] if gone else []))
    with sqlite3.connect(path) as db:
        moved = [
            db.execute("SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = ?", (kind,)).fetchone()[0]
            for kind in (11, 12)
        ]
    db.close()
    (row,) = _report(path, "um_total_sum", capfd)
    sizes = [row[f"Total {way} Migration Size (MB)"] for way in ("HtoD", "DtoH")]
    assert sizes == ["" if b is None else f"{b / 1e6:.3f}" for b in moved]
    assert row["Total CPU Page Faults"] == "30"
    assert row["Total GPU PageFaults"] == ("" if gone == "counts" else "90")
    # Addresses only where faults of both sides and copies of both directions have some: so says nsys's query.
    whole = gone in (None, "counts")
    assert row["Minimum Virtual Address"] == ("0x7F0000000000" if whole else "")
    assert row["Maximum Virtual Address"] == ("0x7F00000A0000" if whole else "")


def test_without_page_faults_of_one_side_nsys_has_no_totals(other_traces, tmp_path, capfd):
    path = without(other_traces, tmp_path, "DROP TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS")
    assert run(["stats", "-r", "um_total_sum", "--no-cache", str(path)]) == 3
    assert "no page faults of the CPU on unified memory" in capfd.readouterr().err


def test_a_gpu_has_the_name_that_the_description_of_the_machine_gives(unpacked, tmp_path, capfd):
    named = without(unpacked("eager"), tmp_path, "DROP TABLE TARGET_INFO_GPU")
    assert api.open(named, cache=False).info().rows["gpu"].to_list() == ["NVIDIA H200"]
    assert _report(named, "cuda_gpu_trace", capfd)[0]["Device"] == "NVIDIA H200 (0)"
    folder = tmp_path / "unnamed"
    folder.mkdir()
    for text in ["{}", "no JSON", json.dumps({"Gpus": [{"Id": 0}]}), json.dumps({"Gpus": 7}), "[]"]:
        statement = f"UPDATE TARGET_INFO_SYSTEM_ENV SET value = '{text}' WHERE name = 'GpuInfo'"
        unnamed = without(named, folder, statement)
        assert api.open(unnamed, cache=False).info().rows["gpu"].to_list() == [None], text
    assert _report(unnamed, "cuda_gpu_trace", capfd)[0]["Device"] == "GPU (0)"

"""Counters that torch sampled into a .pftrace, where they are asked for: `kernels`, the clock, lanes of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope import api
from torch_pftrace import pftrace

#: Two kernels of a step, 20 ms each, with a tensor-bound and a memory-bound name; the clock falls before the second.
MS = 1_000_000
METRICS = {
    "SM Active (%)": (90.0, 40.0),
    "HBM Read (%)": (10.0, 70.0),
    "HBM Write (%)": (5.0, 20.0),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": (60.0, 0.0),
    "SM Clock (MHz)": (1980.0, 1100.0),
}
COLUMNS = ("sm_active_pct", "dram_read_pct", "dram_write_pct", "tensor_active_pct")


def _trace(folder: Path) -> Path:
    def event(cat: str, name: str, start: float, length: float, **args: object) -> dict[str, object]:
        gpu = cat == "kernel"
        return {"cat": cat, "name": name, "ts": start, "dur": length, "pid": 0 if gpu else 7, "tid": 7, "args": args}

    place = {"device": 0, "stream": 7, "context": 1}
    events = []
    for step in range(2):
        begin = step * 50_000.0
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, 49_000.0))
        for k, name in enumerate(("gemm", "copy_rows")):
            launch, number = begin + 10 + 20 * k, 2 * step + k + 1
            events.append(event("cuda_runtime", "cudaLaunchKernel", launch, 5, correlation=number))
            events.append(event("kernel", name, begin + 1000 + 20_000 * k, 20_000.0, correlation=number, **place))
    samples = [
        (name, step * 50 * MS + MS + 20 * MS * k + at * MS // 2, value)
        for step in range(2)
        for name, values in METRICS.items()
        for k, value in enumerate(values)
        for at in range(40)
    ]
    path = folder / "rank0.pftrace"
    path.write_bytes(pftrace(0, events, samples=samples))
    return path


def test_kernels_have_their_samples(tmp_path):
    rows = api.open(_trace(tmp_path), cache=False).kernels(index=0).rows
    for k, name in enumerate(("gemm", "copy_rows")):
        row = rows.filter(name=name).row(0, named=True)
        wanted = [METRICS[m][k] for m in METRICS if "Clock" not in m]
        assert [row[c] for c in COLUMNS] == pytest.approx(wanted) and row["metric_samples"] >= 35


def test_the_clock_is_judged_and_lanes_are_drawn(tmp_path):
    profile = api.open(_trace(tmp_path), cache=False)
    found = profile.diagnose(index=0, only=("clock-throttling",)).rows
    assert found["id"].to_list() == ["clock-throttling"] and "1,980 MHz" in found["evidence"][0]
    page = tmp_path / "report.html"
    profile.report(page)
    assert "SM Clock (MHz)" in page.read_text() and "SM Active (%)" in page.read_text()

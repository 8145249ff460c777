"""Sampled GPU metrics and the kernels that ran meanwhile: planted activity, brute force, and raw rows of nsys."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepscope
from fake import Row, make, op
from stepscope import api
from stepscope.derive.kernel.sampled import Sampled
from stepscope.nsys import recipes

NAMES = {
    "sm_active_pct": "SMs Active [Throughput %]",
    "tensor_active_pct": "Tensor Active [Throughput %]",
    "dram_read_pct": "DRAM Read Bandwidth [Throughput %]",
    "dram_write_pct": "DRAM Write Bandwidth [Throughput %]",
}


def samples(kernels: list[tuple[int, int, str]], truth: dict[str, float], period: int, until: int) -> list[Row]:
    """What a sampler says of kernels that never overlap: exact means over its periods."""
    ns = np.zeros(until)
    for start, end, name in kernels:
        ns[start:end] = truth[name]
    return [
        {"start_ns": at, "device": 0, "name": name, "value": float(ns[at : at + period].mean())}
        for at in range(0, until, period)
        for name in NAMES.values()
    ]


def test_kernels_get_the_activity_of_samples_that_they_fill():
    truth = {"attention": 80.0, "gemm": 50.0, "short": 10.0}
    kernels = [(100, 760, "attention"), (760, 1200, "gemm"), (1210, 1260, "short"), (1300, 1350, "short")]
    counters = samples(kernels, truth, 100, 1600)
    p = make(ops=[op(s, e, n) for s, e, n in kernels], counters=counters)
    result = api.analyse(p, "kernels", whole=True)
    rows = {r["name"]: r for r in result.rows.to_dicts()}
    # [100, 700) are six samples of attention alone; [800, 1200) four of gemm; [700, 800) is of both.
    assert rows["attention"]["metric_samples"] == 6 and rows["gemm"]["metric_samples"] == 4
    assert all(rows["attention"][c] == 80.0 and rows["gemm"][c] == 50.0 for c in NAMES)
    assert rows["short"]["metric_samples"] == 0 and rows["short"]["sm_active_pct"] is None
    assert any("tell of 92 % of the kernels' time" in n and "--gpu-metrics-frequency" in n for n in result.notes)
    mean = (660 * 80 + 440 * 50 + 100 * 10) / 1250
    assert result.summary["total"][0]["sm_active_pct"] == pytest.approx(mean, rel=0.01)
    family = api.analyse(p, "kernels", whole=True, by="family").rows.filter(family="gemm").row(0, named=True)
    assert (family["metric_samples"], family["tensor_active_pct"]) == (4, 50.0)


def test_without_samples_columns_are_null_and_nothing_is_said():
    result = api.analyse(make(ops=[op(0, 10)]), "kernels", whole=True)
    assert result.rows["metric_samples"].to_list() == [None] and not any("sampled" in n for n in result.notes)


def test_samples_of_a_shared_gpu_are_nobodys():
    kernels = [(0, 1000, "gemm")]
    counters = samples(kernels, {"gemm": 50.0}, 100, 1000)
    both = [{"proc": n, "gpu_id": 0} for n in range(2)]
    rows = [r | {"proc": n} for r in counters for n in range(2)]
    p = make(processes=both, ops=[op(0, 1000, "gemm", proc=n) for n in range(2)], counters=rows)
    assert api.analyse(p, "kernels", whole=True).rows["metric_samples"].to_list() == [None, None]


@settings(max_examples=50)
@given(st.integers(0, 10_000))
def test_means_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    start = np.sort(rng.choice(300, 20, replace=False))
    end = np.minimum(np.append(start[1:], 310), start + rng.integers(1, 30))
    value = rng.integers(0, 100, 20).astype(float)
    each = np.full(400, np.nan)
    for s, e, v in zip(start, end, value, strict=True):
        each[s:e] = v
    lo = rng.integers(0, 300, 30)
    hi = lo + rng.integers(1, 60, 30)
    for a, b, mean in zip(lo, hi, Sampled(start, end, value).mean(lo, hi), strict=True):
        known = each[a:b][~np.isnan(each[a:b])]
        assert np.isnan(mean) if 2 * len(known) < b - a else mean == pytest.approx(known.mean())


# -- a real capture with 205,832 samples -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rich(shared):
    return shared / "traces/h200/hf/hf1_rich.sqlite"


def metric(db: sqlite3.Connection, number: int) -> np.ndarray:
    return np.array(
        db.execute("SELECT timestamp, value FROM GPU_METRICS WHERE metricId = ? ORDER BY 1", (number,)).fetchall()
    )


def test_a_sample_holds_after_its_time(rich):
    """`GR Active` beside the busy time of raw kernels, in the 100 µs after each timestamp and in those before."""
    with closing(sqlite3.connect(f"file:{rich}?mode=ro", uri=True)) as db:
        active = metric(db, 2)
        busy = np.array(
            db.execute(
                "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT start, end FROM "
                "CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET ORDER BY 1"
            ).fetchall()
        )
    active = active[(active[:, 0] > 16_000_000) & (active[:, 0] < 790_000_000)]
    edges = active[:, 0]
    upto = np.cumsum(busy[:, 1] - busy[:, 0])  # one stream: kernels never overlap
    ran = np.interp(np.add.outer([-100_000, 0, 100_000], edges), busy.ravel(), np.repeat(np.append(0, upto), 2)[1:-1])
    before, after = np.diff(ran, axis=0)
    assert np.corrcoef(after, active[:, 1])[0, 1] > 0.99 > 0.5 > np.corrcoef(before, active[:, 1])[0, 1]


def test_activity_of_a_real_kernel(rich):
    """The backward pass of cuDNN's attention, by the plainest look at the raw samples."""
    result = stepscope.open(rich, cache=False).kernels()
    row = result.rows.filter(name="cudnn_sdpa_sm90_flash_bprop_wgmma_f16_64x64x64_1x4x1").row(0, named=True)
    low, high = (result.window[0][c] for c in ("gpu_start_ns", "gpu_end_ns"))
    with closing(sqlite3.connect(f"file:{rich}?mode=ro", uri=True)) as db:
        runs = db.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
            "WHERE s.value LIKE 'cudnn%bprop_wgmma_f16%64x64x64_1x4x1%' AND start >= ? AND end <= ?", (low, high),
        ).fetchall()  # fmt: skip
        found = [
            [v for t, v in metric(db, n).tolist() if any(s - 5000 <= t and t + 100_000 <= e + 5000 for s, e in runs)]
            for n in (3, 5, 18, 19)
        ]
    assert len(runs) == row["n"] == 16
    assert abs(len(found[0]) - row["metric_samples"]) <= 2 and row["metric_samples"] > 20
    for column, values in zip(NAMES, found, strict=True):
        assert row[column] == pytest.approx(np.mean(values), abs=1.5)
    assert row["tensor_active_pct"] > 30 > row["dram_read_pct"]


def test_recipes_on_real_samples(rich):
    profile = stepscope.open(rich, cache=False)
    stats = {r["name"]: r for r in recipes.run(profile, "gpu_metric_util_sum").tables["all_stats"].to_dicts()}
    with closing(sqlite3.connect(f"file:{rich}?mode=ro", uri=True)) as db:
        raw = db.execute(
            "SELECT metricName, count(*), avg(value), min(value), max(value) FROM GPU_METRICS m JOIN "
            "TARGET_INFO_GPU_METRICS USING (typeId, metricId) GROUP BY metricName"
        ).fetchall()
    assert len(raw) == 22
    for name, count, mean, low, high in raw:
        row = stats[name]
        assert (row["n"], row["min"], row["max"]) == (count, low, high) and row["avg"] == pytest.approx(mean, abs=0.1)


@pytest.mark.slow
def test_a_clock_that_falls_in_real_samples(rich, tmp_path):
    """Healthy as it is; with the clock of every sample of one step halved, the kernels of that step are throttled."""
    healthy = stepscope.open(rich, cache=False).diagnose(only=("clock-throttling",), least=0)
    assert healthy.rows.height == 0 and "clock-throttling" not in {s["id"] for s in healthy.summary.get("skipped", [])}
    low, high = (healthy.window[0][c] for c in ("gpu_start_ns", "gpu_end_ns"))
    slow = tmp_path / "slow.sqlite"
    shutil.copy(rich, slow)
    with closing(sqlite3.connect(slow)) as db:
        db.execute(
            "UPDATE GPU_METRICS SET value = value / 2 WHERE metricId = 0 AND timestamp BETWEEN ? AND ?",
            (low - 100_000, high),
        )
        db.commit()
    found = stepscope.open(slow, cache=False).diagnose(only=("clock-throttling",), least=0)
    assert found.rows["id"].to_list() == ["clock-throttling"]
    assert "at 50 % of the 1,980 MHz that it reaches" in found.rows["evidence"][0]

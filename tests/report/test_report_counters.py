"""Sampled metrics as lanes of the report's timeline: few marks, no peak lost, and raw samples beside them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import polars as pl
import pytest

import stepscope
from fake import make, op
from stepscope import api
from stepscope.report.asker import Asker
from stepscope.report.counters import MOST, Counters, sampled
from stepscope.report.lanes import FULL


def lanes(profile, **window: object) -> Counters:
    asker = Asker(lambda name, **options: api.analyse(profile, name, **options), ("trace.sqlite",), window)
    parts = asker.ask("timeline", by="part").rows
    return sampled(asker, {}, parts, int(parts["common_start_ns"].min()))


def test_a_page_gets_few_marks_and_every_peak():
    values = np.full(50_000, 10.0)
    values[[7, 31_337]] = 90.0
    rows = [
        {"start_ns": 100 * at, "device": 0, "name": "SMs Active [Throughput %]", "value": v}
        for at, v in enumerate(values.tolist())
    ]
    clock = [{"start_ns": t, "device": 0, "name": "GPC Clock Frequency [MHz]", "value": 1.98e9} for t in (0, 500)]
    other = [{"start_ns": 0, "device": 0, "name": "PCIe RX Throughput [Throughput %]", "value": 1.0}]
    found = lanes(make(ops=[op(0, 5_000_000)], counters=[*rows, *clock, *other]), whole=True)
    assert found.labels == [("SMs Active, %", 100.0), ("GPC Clock, MHz", 1980.0)]
    marks = found.marks.filter(level=0)
    assert marks.height <= MOST + 1
    peaks = marks.filter((pl.col("n") * 100 / FULL).round(1) == 90)
    assert [(s <= at < e) for s, e, at in zip(peaks["start"], peaks["end"], (700, 3_133_700), strict=True)] == [
        True
    ] * 2
    assert (marks["range"] * 100 / FULL).round(1).to_list() == [10.0] * marks.height  # the least of each


def test_without_samples_there_are_no_lanes():
    found = lanes(make(ops=[op(0, 100)]), whole=True)
    assert found.marks.height == 0 and found.labels == []


@pytest.mark.slow
def test_a_real_capture(shared):
    file = shared / "traces/h200/hf/hf1_rich.sqlite"
    found = lanes(stepscope.open(file, cache=False))
    names = ["SMs Active, %", "Tensor Active, %", "DRAM Read Bandwidth, %", "DRAM Write Bandwidth, %", "GPC Clock, MHz"]
    assert [name for name, _ in found.labels] == names
    window = stepscope.open(file, cache=False).timeline(by="part").window[0]
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        for level, metric in enumerate((3, 5, 18, 19)):
            (high,) = db.execute(
                "SELECT max(value) FROM GPU_METRICS WHERE metricId = ? AND timestamp > ? - 100000 AND timestamp < ?",
                (metric, window["gpu_start_ns"], window["gpu_end_ns"]),
            ).fetchone()
            mine = found.marks.filter(level=level)
            assert mine["n"].max() * 100 / FULL == pytest.approx(high, abs=0.01) and mine.height <= MOST + 1

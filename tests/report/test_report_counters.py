"""Sampled metrics as lanes of the report's timeline: few marks, no peak lost, and raw samples beside them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import polars as pl
import pytest

import stepscope
from fake import make, op
from stepscope import api
from stepscope.report.asker import Asker
from stepscope.report.sections import timeline
from stepscope.timeline.counters import CounterTrack, chosen
from stepscope.timeline.kinds import FULL

MOST = timeline.MOST["counters"]


def lanes(profile: api.Profile, monkeypatch: pytest.MonkeyPatch, **window: Any) -> list[CounterTrack]:
    """The counters that a report would draw."""
    tracks: list[CounterTrack] = []
    kept = timeline.arranged

    def arranged(making: Any, rows: Any) -> Any:
        scene = kept(making, rows)
        tracks.extend(row for row in scene.tracks if isinstance(row, CounterTrack))
        return scene

    monkeypatch.setattr(timeline, "arranged", arranged)
    timeline.make(Asker(lambda name, **options: api.analyse(profile, name, **options), ("trace.sqlite",), window))
    return tracks


def test_a_page_gets_few_marks_and_every_peak(monkeypatch):
    values = np.full(50_000, 10.0)
    values[[7, 31_337]] = 90.0
    rows = [
        {"start_ns": 100 * at, "device": 0, "name": "SMs Active [Throughput %]", "value": v}
        for at, v in enumerate(values.tolist())
    ]
    clock = [{"start_ns": t, "device": 0, "name": "GPC Clock Frequency [MHz]", "value": 1.98e9} for t in (0, 500)]
    other = [{"start_ns": 0, "device": 0, "name": "PCIe RX Throughput [Throughput %]", "value": 1.0}]
    busy, speed = lanes(make(ops=[op(0, 5_000_000)], counters=[*rows, *clock, *other]), monkeypatch, whole=True)
    assert (busy.label, busy.unit, busy.most) == ("SMs Active", "%", 90.0)
    assert (speed.label, speed.unit, speed.most) == ("GPC Clock Frequency", "MHz", 1980.0)
    marks = busy.view(-1, 5_000_001, MOST)
    assert len(marks.start) <= MOST + 1
    peaks = np.flatnonzero(marks.n == FULL)
    assert [(marks.start[k] <= at < marks.end[k]) for k, at in zip(peaks, (700, 3_133_700), strict=True)] == [True] * 2
    assert np.unique((marks.row * 90 / FULL).round(1)).tolist() == [10.0]  # the least of each


def test_without_samples_there_are_no_lanes(monkeypatch):
    assert lanes(make(ops=[op(0, 100)]), monkeypatch, whole=True) == []


@pytest.mark.slow
def test_samples_of_something_else_are_not_drawn():
    frame = pl.DataFrame({"counter": ["Device memory"], "device": [0], "start_ns": [5], "value": [1.0]})
    assert chosen(frame).is_empty() and chosen(frame).columns == frame.columns


def test_a_real_capture(shared, monkeypatch):
    file = shared / "traces/h200/hf/hf1_rich.sqlite"
    tracks = lanes(stepscope.open(file, cache=False), monkeypatch)
    names = ["SMs Active", "Tensor Active", "DRAM Read Bandwidth", "DRAM Write Bandwidth", "GPC Clock Frequency"]
    assert [track.label for track in tracks] == names
    window = stepscope.open(file, cache=False).timeline(by="part").window[0]
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        for track, metric in zip(tracks, (3, 5, 18, 19), strict=False):
            (high,) = db.execute(
                "SELECT max(value) FROM GPU_METRICS WHERE metricId = ? AND timestamp > ? - 100000 AND timestamp < ?",
                (metric, window["gpu_start_ns"], window["gpu_end_ns"]),
            ).fetchone()
            marks = track.view(-1, int(track.start[-1]) + 1, MOST)
            assert marks.n.max() * track.most / FULL == pytest.approx(high, abs=0.01) and len(marks.start) <= MOST + 1

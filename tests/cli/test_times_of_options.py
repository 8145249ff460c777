"""Every option that takes a time takes `1ms` as well as a plain number: both say the same."""

from __future__ import annotations

import json

import pytest

from stepscope.capture.spec import Spec
from stepscope.errors import BadInput
from stepscope.nsys.recipes import find as recipe
from stepscope.nsys.reports.part import parse_span
from stepscope.nsys.reports.registry import all_rules, reports
from stepscope.nsys.reports.registry import find as report


def test_a_window_by_times(stepscope):
    spans = [("1us", "2us"), ("1000", "2000"), ("0.001ms", "0.000002s")]
    windows = [json.loads(stepscope("window", "x", "--start", a, "--end", b, "--format", "json").out) for a, b in spans]
    assert {(w["gpu_start_ns"], w["gpu_end_ns"]) for w in windows[0]["window"]} == {(1000, 2000)}
    assert windows[0]["window"] == windows[1]["window"] == windows[2]["window"]


def test_a_part_of_a_report_or_recipe():
    _, args = report("cuda_gpu_sum:start=1ms:end=2.5ms", reports())
    assert (args["start"], args["end"]) == (1_000_000, 2_500_000)
    assert recipe("cuda_gpu_kern_sum").parse({"start": "1ms", "end": 2_500_000})["start"] == 1_000_000
    assert parse_span("1s/1500ms") == (10**9, 1_500_000_000)


def test_gaps_are_in_milliseconds_unless_they_say():
    gaps = [report(f"gpu_gaps{text}", all_rules(), "rule")[1].number("gap") for text in ("", ":gap=3", ":gap=800us")]
    assert gaps == [500_000_000, 3_000_000, 800_000]


def test_a_capture_by_time(tmp_path):
    def trigger(text: str) -> tuple[float, float] | None:
        return Spec(("true",), tmp_path, trigger=text).time

    assert trigger("time=30+5") == trigger("time=30s+5000ms") == trigger("time=0.5m+5s") == (30.0, 5.0)
    with pytest.raises(BadInput, match="--trigger 'soon': not a time"):
        trigger("time=soon+5")

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
    begin = 2_000_000  # the first op of the profile
    assert {(w["gpu_start_ns"], w["gpu_end_ns"]) for w in windows[0]["window"]} == {(begin + 1000, begin + 2000)}
    assert windows[0]["window"] == windows[1]["window"] == windows[2]["window"]


def test_a_window_on_the_clock_of_the_trace(stepscope):
    given = [("@2001us", "@2002us"), ("@2.001ms", "@2002000"), ("1us", "2us")]
    found = [json.loads(stepscope("window", "x", "--start", a, "--end", b, "--format", "json").out) for a, b in given]
    spans = [[(w["gpu_start_ns"], w["gpu_end_ns"]) for w in each["window"]] for each in found]
    assert spans[0] == spans[1] == spans[2]
    assert found[0]["window"][0]["label"] == "[@2.001 ms, @2.002 ms)"
    assert found[2]["window"][0]["label"] == "[0.001 ms, 0.002 ms)"


def test_two_clocks_at_once_are_refused(stepscope):
    ran = stepscope("window", "x", "--start", "@1us", "--end", "2us")
    assert ran.status == 2 and "on two clocks; write @ before both, or before neither" in ran.err


@pytest.mark.parametrize("start, end", [("500s", "600s"), ("@0", "@1us"), ("@3877350851.958ms", "@3877350852ms")])
def test_a_window_outside_the_capture_is_refused(stepscope, start, end):
    ran = stepscope("breakdown", "x", "--start", start, "--end", end)
    assert ran.status == 2 and "outside the capture, which lasts" in ran.err
    assert "on the trace's clock it begins at @2.000ms" in ran.err


def test_times_are_printed_from_the_captures_beginning(stepscope):
    """The first op begins at 2 ms of the trace's clock."""
    ran = stepscope("window", "x", "--whole")
    assert "times are relative to the start of the capture" in ran.out
    row = next(line for line in ran.out.splitlines() if "(whole capture)" in line)
    assert row.split()[-5:] == ["0.000", "ms", "25.000", "ms", "6"]


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

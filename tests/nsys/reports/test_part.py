"""Parts of a capture: times with units, records at the edges, NVTX ranges by name."""

from __future__ import annotations

import polars as pl
import pytest

from fake import STEP_NS, three_steps
from stepscope.errors import BadInput
from stepscope.model.profile import Profile
from stepscope.nsys.reports import report
from stepscope.nsys.reports.part import Part, nvtx_range, parse_span


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1s2ms3us4ns/", (1_002_003_004, None)),
        ("/2ns5us2", (None, 5004)),
        ("1.5ms/2e6", (1_500_000, 2_000_000)),
        ("-1sec/1min", (-1_000_000_000, 60_000_000_000)),
        ("0/1h", (0, 3_600_000_000_000)),
    ],
)
def test_times(text, span):
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "/", "5", "1x/2", "2/1", "1s 2ms/"])
def test_bad_times(text):
    with pytest.raises(BadInput, match="--filter-time"):
        parse_span(text)


def test_a_record_that_touches_belongs_to_the_part_as_in_nsys():
    frame = pl.DataFrame({"rank": [0] * 5, "start_ns": [0, 5, 20, 0, 12], "end_ns": [10, 30, 40, 9, 15]})
    assert Part(10, 20).mask(frame).to_list() == [True, True, False, False, True]


def test_nvtx_range_by_name_and_index():
    profile = Profile([three_steps()])
    found = nvtx_range(profile, "step 1")
    assert (found.start, found.end, found.rank, found.tid) == (STEP_NS, 2 * STEP_NS, 0, 1)
    assert nvtx_range(profile, "step 1/1").rank == 1
    with pytest.raises(BadInput, match="index 2"):
        nvtx_range(profile, "step 1/2")
    with pytest.raises(BadInput, match="no NVTX range 'step 9'"):
        nvtx_range(profile, "step 9")


def test_a_part_leaves_the_rest_out():
    profile = Profile([three_steps()])
    whole = report(profile, "cuda_gpu_kern_sum")
    part = report(profile, f"cuda_gpu_kern_sum:start=0:end={STEP_NS}")
    step = report(profile, "cuda_gpu_kern_sum:nvtx=step 0")
    assert whole["Instances"].to_list() == [6, 6]
    assert part["Instances"].to_list() == [2, 2]  # both ranks
    assert step["Instances"].to_list() == [1, 1]  # the rank of the range

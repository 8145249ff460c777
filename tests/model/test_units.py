"""Numbers with their units."""

from __future__ import annotations

import math

import pytest

from stepscope.model.units import file_names, header, show


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("dur_ns", 0, "0 ns"),
        ("dur_ns", 999, "999 ns"),
        ("dur_ns", 1_000, "1.000 µs"),
        ("dur_ns", 52_345_678, "52.35 ms"),
        ("dur_ns", 999_999_999, "1.000 s"),
        ("dur_ns", 123_456_789_000, "123.5 s"),
        ("dur_ns", -1_500, "-1.500 µs"),
        ("offset_us", 12.5, "12.50 µs"),
        ("gpu_start_ns", 12_000_000, "12.000 ms"),
        ("overlap_pct", 58.44, "58.4%"),
        ("bytes", 3_145_728, "3.000 MiB"),
        ("moved_bytes", 12, "12 B"),
        ("busbw_gbps", 312.4567, "312.5 GB/s"),
        ("n", 12_345_678, "12345678"),
        ("score", 0.30412, "0.3041"),
        ("outlier", True, "yes"),
        ("anything", None, "-"),
        ("overlap_pct", math.nan, "-"),
        ("ranks", [0, 1], "0, 1"),
        ("label", "two\nlines", "two lines"),
    ],
)
def test_show(name, value, text):
    assert show(name, value) == text


def test_the_header_leaves_the_unit_to_the_values():
    assert [header(n) for n in ("exposed_wall_ns", "overlap_pct", "n", "bytes")] == [
        "exposed_wall",
        "overlap",
        "n",
        "bytes",
    ]


def test_files_lose_their_directory_unless_that_tells_them_apart():
    assert file_names(["/a/x.json", "/a/y.json"]) == ["x.json", "y.json"]
    assert file_names(["/a/x.json", "/b/x.json"]) == ["/a/x.json", "/b/x.json"]

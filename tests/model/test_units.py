"""Numbers with their units."""

from __future__ import annotations

import math

import pytest

from stepscope.model.units import about, duration, file_names, header, show, signed


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
        ("flops", 5_514_536_717_248, "5.515 TFLOP"),
        ("busbw_gbps", 312.4567, "312.5 GB/s"),
        ("n", 12_345_678, "12345678"),
        ("score", 0.30412, "0.3041"),
        ("outlier", True, "yes"),
        ("anything", None, "-"),
        ("overlap_pct", math.nan, "-"),
        ("ranks", [0, 1], "0, 1"),
        ("of a MAP", [{"key": "kernel", "value": 48}, {"key": "memcpy", "value": None}], "kernel: 48, memcpy: -"),
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


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999.6, "1 µs"),
        (1_500, "1.5 µs"),
        (27_400, "27.4 µs"),
        (120_000, "120 µs"),
        (999_400, "999 µs"),
        (999_600, "1 ms"),
        (3_410_000, "3.41 ms"),
        (10_000_000, "10 ms"),
        (378_015_495, "378 ms"),
        (1_859_795_512, "1.86 s"),
        (100 * 10**9, "100 s"),
        (4_321 * 10**9, "4321 s"),
        (-2_500_000, "-2.5 ms"),
    ],
)
def test_times_in_sentences(ns: float, text: str):
    assert about(ns) == text


def test_sentences_and_tables_take_the_same_unit():
    """Four digits in a sentence are the table's, but for zeros at the end; a difference says its sign."""
    for ns in (1_234.5, 99_996, 1_859_795_512, 12_340_000):
        assert float(about(ns, 4).split()[0]) == float(duration(ns).split()[0])
        assert about(ns, 4).split()[1] == duration(ns).split()[1]
    assert (signed(1_500_000), signed(-1_500_000), signed(0)) == ("+1.5 ms", "-1.5 ms", "0 ns")

"""Numbers of one column share a unit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.alike import alike
from stepscope.model.units import show


@pytest.mark.parametrize(
    ("name", "values", "cells"),
    [
        ("total_ns", [10_280_000, 4_260_000, 84_900, 0, None], ["10.28 ms", "4.260 ms", "0.085 ms", "0 ms", "-"]),
        ("total_ns", [49_520, 1_520], ["49.52 µs", "1.520 µs"]),
        ("total_ns", [12, 7], ["12 ns", "7 ns"]),
        ("total_ns", [0, 0], ["0 ns", "0 ns"]),
        # Most would have lost their digits beside one of seconds.
        ("total_ns", [3_063_000_000, 5_000_000, 4_000_000], ["3063 ms", "5.000 ms", "4.000 ms"]),
        ("total_ns", [139_500_000, 310], ["139.5 ms", "310 ns"]),  # it would read as nothing
        ("diff_ns", [-18_860_000, 3_215, -513_600, 0], ["-18.86 ms", "+0.003 ms", "-0.514 ms", "0 ms"]),
        ("mean_us", [1530.0, 48.69], ["1.530 ms", "0.049 ms"]),
        ("bytes", [2**34, 2**30, 2**27], ["16.00 GiB", "1.000 GiB", "0.125 GiB"]),
        ("bytes", [512, 40], ["512 B", "40 B"]),
        ("model_flops", [1.5e12, 2.5e11], ["1.500 TFLOP", "0.250 TFLOP"]),
        ("start_ns", [2_000_000_000, 5_000], ["2000.000 ms", "0.005 ms"]),
        ("share_pct", [12.34, 0.05], ["12.3%", "0.1%"]),
        ("n", [10_280_000, 3], ["10280000", "3"]),
    ],
)
def test_by_hand(name: str, values: list[float | None], cells: list[str]) -> None:
    assert alike(name, values) == cells


@pytest.mark.parametrize("name", ["total_ns", "bytes"])
@given(values=st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=8))
def test_a_cell_is_the_value_in_the_unit_of_the_others(name: str, values: list[int]) -> None:
    factors = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    cells = alike(name, values)
    units = {}
    for value, cell in zip(values, cells, strict=True):
        number, unit = cell.split()
        assert float(number) * factors[unit] == pytest.approx(value, rel=1e-3, abs=0.51e-3 * factors[unit])
        assert (float(number) == 0) == (value == 0)
        units.setdefault(unit, []).append(value)
    largest = max(values, key=abs)
    shared = cells[values.index(largest)].split()[1]
    for unit, others in units.items():
        assert unit == shared or all(abs(v) < 0.5e-3 * factors[shared] for v in others)


def test_one_value_alone_is_as_in_a_sentence() -> None:
    for ns in (7, 1_520, 84_900, 999_960, 4_260_000, 10_280_000, 3_063_000_000):
        assert alike("total_ns", [ns]) == [show("total_ns", ns)]
        assert re.fullmatch(r"[\d.]+ (ns|µs|ms|s)", show("total_ns", ns))

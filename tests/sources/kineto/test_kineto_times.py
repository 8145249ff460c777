"""Microseconds with decimals become exactly the nanoseconds that the text says."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import rows, source

from stepscope.sources.kineto.source import KinetoSource
from stepscope.sources.kineto.times import exact_nanoseconds, nanoseconds

YEAR_US = 366 * 86_400 * 10**6


@given(st.lists(st.tuples(st.integers(0, 2**43 * 1000 - 1), st.integers(0, 10**15)), min_size=1))
def test_three_decimals_survive_float64_below_2_to_43(pairs: list[tuple[int, int]]) -> None:
    ts = np.array([float(f"{a // 1000}.{a % 1000:03d}") for a, _ in pairs])
    dur = np.array([float(f"{d // 1000}.{d % 1000:03d}") for _, d in pairs])
    start, end, sane = nanoseconds(ts, dur)
    assert start.tolist() == [a for a, _ in pairs]
    assert end.tolist() == [a + d for a, d in pairs]
    assert sane.all()


@given(st.lists(st.tuples(st.integers(0, 2**53 * 10**6 - 1), st.integers(0, 10**12)), min_size=1))
def test_text_is_exact_at_any_size(pairs: list[tuple[int, int]]) -> None:
    """Six decimals, up to 285 years: the end is the rounded sum, not the sum of rounded parts."""
    texts = [(Decimal(a).scaleb(-6), Decimal(d).scaleb(-6)) for a, d in pairs]
    start, end, _ = exact_nanoseconds(list(texts))
    assert start.tolist() == [round(ts * 1000) for ts, _ in texts]
    assert end.tolist() == [round((ts + dur) * 1000) for ts, dur in texts]


@pytest.mark.parametrize(
    ("ts", "dur", "start_ns", "end_ns"),
    [
        ("1694128201427784.123", "2.001", 1694128201427784123, 1694128201427786124),  # since 1970, with a fraction
        ("1694128201427784.05", "1", 1694128201427784050, 1694128201427785050),  # as a float64: a whole number
        ("1694128201427784", "8", 1694128201427784000, 1694128201427792000),
        ("3847876236556.505", "41722.894", 3847876236556505, 3847876278279399),  # what Kineto writes today
        ("3847876236556.50549", "0.00002", 3847876236556505, 3847876236556506),  # more decimals than a float64 holds
        ("8796093022207.999", "0.001", 8796093022207999, 8796093022208000),  # the last one below 2^43
        ("12.5e3", "1E-1", 12500000, 12500100),
    ],
)
def test_written_times(tmp_path: Path, ts: str, dur: str, start_ns: int, end_ns: int) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, '
        f'"ts": {ts}, "dur": {dur}, "args": {{"device": 0, "stream": 7}}}}]}}'
    )
    (row,) = rows(KinetoSource(path), "ops")
    assert (row["start_ns"], row["end_ns"]) == (start_ns, end_ns)


def test_impossible_times_are_dropped_and_counted(tmp_path: Path) -> None:
    def at(ts: object, dur: object) -> dict[str, object]:
        return {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": ts, "dur": dur}

    bad = [at(5, -1), at(5, YEAR_US + 1), at(5, 1e300), at(None, 1), at(1e17, 1)]
    found = source(tmp_path, [at(1, 1), *bad])
    assert len(rows(found, "host")) == 1
    assert found.quality.notes == ["5 events with an impossible time (negative or over a year) left out"]


def test_base_time_is_not_added_but_told(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 2.5, "dur": 1}
    found = source(tmp_path, [op], baseTimeNanoseconds=10**18)
    assert rows(found, "host")[0]["start_ns"] == 2500
    assert found.info.epoch_ns == 10**18
    assert source(tmp_path, [op]).info.epoch_ns is None
    assert source(tmp_path, [{**op, "ts": 1694128201427784}]).info.epoch_ns == 0

"""Any frame comes back as it was: types, nulls, order, and the float's very bits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stepscope.model.schema import TABLES, empty
from stepscope.store import container

ENUM = pl.Enum(["none", "HtoD", "unified"])
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pl.Int8: st.integers(-(2**7), 2**7 - 1),
    pl.Int32: st.integers(-(2**31), 2**31 - 1),
    pl.Int64: st.integers(-(2**63), 2**63 - 1),
    pl.UInt16: st.integers(0, 2**16 - 1),
    pl.UInt32: st.integers(0, 2**32 - 1),
    pl.UInt64: st.integers(0, 2**64 - 1),
    pl.Float64: st.floats(),
    pl.Boolean: st.booleans(),
    pl.String: st.text(max_size=40),
    pl.Date: st.dates(),
    ENUM: st.sampled_from(ENUM.categories.to_list()),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    rows = draw(st.integers(0, 20))
    columns = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=6))
    series = []
    for n, dtype in enumerate(columns):
        value = VALUES[dtype]
        cell = draw(st.sampled_from([value, value | st.none(), st.none()]))
        series.append(pl.Series(f"c{n}", draw(st.lists(cell, min_size=rows, max_size=rows)), dtype=dtype))
    frame = pl.DataFrame(series)
    cut = draw(st.integers(0, rows))  # slices and several chunks are frames like any other
    return pl.concat([frame[:cut], frame[cut:]], rechunk=draw(st.booleans()))


def round_trip(frame: pl.DataFrame, meta: dict[str, Any]) -> tuple[dict[str, Any], pl.DataFrame]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        with path.open("wb") as file:
            container.write(file, meta, {"frame": frame})
        back, found = container.read(path)
    return back, found["frame"]


@settings(deadline=None)
@given(frames(), st.lists(st.text()))
def test_round_trip(frame: pl.DataFrame, notes: list[str]) -> None:
    meta, back = round_trip(frame, {"notes": notes})
    assert meta == {"notes": notes}
    assert back.schema == frame.schema
    assert_frame_equal(back, frame, check_exact=True)


@pytest.mark.parametrize("table", TABLES)
def test_empty_tables_of_the_model(table: str) -> None:
    assert_frame_equal(round_trip(empty(table), {})[1], empty(table))


def test_several_frames_and_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        container.write(file, {"a": [1, None, "ü"]}, {})
    assert container.read(path) == ({"a": [1, None, "ü"]}, {})


def test_columns_are_the_mapping_itself(tmp_path: Path) -> None:
    """No copy: the column's buffer is the file's, and outlives the file's name."""
    path = tmp_path / "x"
    with path.open("wb") as file:
        container.write(file, {}, {"frame": pl.DataFrame({"a": range(100_000)})})
    column = container.read(path)[1]["frame"]["a"]
    mapped = Path("/proc/self/maps")
    if mapped.exists():
        spans = [line.split()[0].split("-") for line in mapped.read_text().splitlines() if line.endswith(str(path))]
        at = column.to_numpy().ctypes.data
        assert any(int(lo, 16) <= at < int(hi, 16) for lo, hi in spans)
    path.unlink()
    assert column.sum() == sum(range(100_000))

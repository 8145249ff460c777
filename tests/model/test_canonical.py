"""Rows in canonical order, whatever order they come in: checked against a plain sort."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.source import canonical

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6)), max_size=40)


@given(ROWS)
def test_by_process_start_and_end_ties_in_file_order(rows: list[tuple[int, int, int]]) -> None:
    frame = pl.DataFrame(
        {
            "proc": pl.Series([r[0] for r in rows], dtype=pl.Int32),
            "start_ns": pl.Series([r[1] for r in rows], dtype=pl.Int64),
            "end_ns": pl.Series([r[2] for r in rows], dtype=pl.Int64),
            "at": pl.Series(range(len(rows)), dtype=pl.Int64),
        }
    )
    assert canonical(frame, "ops").rows() == sorted(frame.rows())

"""Packing loses no number, and thinning no mark and no time."""

from __future__ import annotations

import base64
import gzip

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stepscope.report.pack import Columns
from stepscope.report.thin import shares, thin


@given(st.lists(st.lists(st.integers(0, 2**52), max_size=20), max_size=5))
def test_columns_come_back(columns):
    block = Columns()
    places = [block.add(np.array(c, dtype=np.int64)) for c in columns]
    raw = gzip.decompress(base64.b64decode(block.text()))
    for values, place in zip(columns, places, strict=True):
        assert place["at"] % 8 == 0
        assert np.frombuffer(raw, f"<{place['type']}", place["n"], place["at"]).tolist() == values


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 10_000), st.integers(0, 400)), min_size=1),
    st.integers(1, 30),
)
def test_thinning_loses_no_mark(rows, most):
    lane, kind, start, length = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    marks = pl.DataFrame({"lane": lane, "kind": kind, "start": start, "end": start + length, "n": np.ones_like(lane)})
    marks = marks.with_columns(pl.int_range(pl.len()).alias("name"))
    kept, bin_ns = thin(marks, most, ("lane", "kind"))
    assert kept["n"].sum() == len(rows)
    assert (bin_ns == 0) == (len(rows) <= most)
    for (who, what), some in kept.group_by("lane", "kind"):
        all_of = marks.filter((pl.col("lane") == who) & (pl.col("kind") == what))
        assert all_of["start"].min() == some["start"].min() and all_of["end"].max() == some["end"].max()
        merged = some.filter(pl.col("n") > 1)
        for m in merged.iter_rows(named=True):
            inside = all_of.filter((pl.col("start") >= m["start"]) & (pl.col("end") <= m["end"]))
            short = inside.filter(pl.col("end") - pl.col("start") < bin_ns)
            assert short.height >= m["n"] and m["end"] - m["start"] < 2 * bin_ns
            assert marks["name"].is_in([m["name"]]).any()
        assert set(all_of.filter(pl.col("end") - pl.col("start") >= max(bin_ns, 1))["name"]) <= set(some["name"])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=60), st.integers(1, 20))
def test_parts_keep_their_time(rows, most):
    kind, length = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    end = np.cumsum(length)
    marks = pl.DataFrame({"lane": np.zeros_like(end), "kind": kind, "start": end - length, "end": end})
    marks = marks.with_columns(pl.lit(1, pl.Int64).alias("n"), pl.lit(0).alias("name"))
    kept, _ = shares(marks, most, ("lane",))
    time = pl.col("end") - pl.col("start")
    for frame in (kept, marks):
        assert frame["n"].sum() == len(rows)
    want, got = (dict(f.group_by("kind").agg(time.sum().alias("ns")).iter_rows()) for f in (marks, kept))
    assert got == want
    ordered = kept.sort("start")
    assert ordered["start"].to_list() == [0, *ordered["end"].to_list()[:-1]]  # no gap, no overlap

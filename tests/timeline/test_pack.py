"""Packing loses no number."""

from __future__ import annotations

import base64
import gzip

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.timeline.pack import Columns


@given(st.lists(st.lists(st.integers(0, 2**52), max_size=20), max_size=5))
def test_columns_come_back(columns):
    block = Columns()
    places = [block.add(np.array(c, dtype=np.int64)) for c in columns]
    raw = gzip.decompress(base64.b64decode(block.text()))
    for values, place in zip(columns, places, strict=True):
        assert place["at"] % 8 == 0
        assert np.frombuffer(raw, f"<{place['type']}", place["n"], place["at"]).tolist() == values

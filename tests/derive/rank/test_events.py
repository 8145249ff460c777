"""Records and waits: equal to brute force, with events that are reused and records that are missing."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stepscope.derive.rank.events import record_of
from stepscope.model.columns import SYNC_KIND

KINDS = ("record", "stream_wait", "event_sync", "stream_sync")
ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.none() | st.integers(1, 3), st.sampled_from(KINDS)), min_size=0, max_size=30
)


@given(ROWS)
def test_a_wait_is_for_the_latest_record_of_its_event(rows: list[tuple[int, int | None, str]]):
    rows.sort(key=lambda r: r[0])  # a rank's syncs are in order of time
    schema = {"start_ns": pl.Int64, "event": pl.Int64, "kind": SYNC_KIND}
    record = record_of(pl.DataFrame(rows, schema=schema, orient="row")).tolist()
    for wait, (time, event, kind) in enumerate(rows):
        before = [
            (rows[k][0], k)
            for k in range(len(rows))
            if rows[k][2] == "record" and rows[k][1] == event and rows[k][0] <= time
        ]
        wanted = max(before)[1] if before and event is not None and kind != "record" else -1
        assert record[wait] == wanted, (wait, rows)

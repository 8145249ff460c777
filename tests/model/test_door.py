"""The door: what it lets in, what it repairs, what it leaves out and what it refuses, each by a row made by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from fake import FakeSource, call, comm, nvtx, op
from stepscope.errors import BadInput
from stepscope.model.columns import Part
from stepscope.model.door import Door, admitted
from stepscope.model.profile import Profile
from stepscope.model.schema import TABLES
from stepscope.model.source import Chunk, SourceInfo

YEAR = 366 * 86_400 * 10**9


def door(capture_ns: int | None = None, **tables: list[dict[str, Any]]) -> Door:
    source = FakeSource(tables)
    source.info = SourceInfo("fake.sqlite", "nsys-sqlite", capture_ns=capture_ns)
    return Door(source)


class Delivers:
    """A source that delivers these very frames, whatever the schema says."""

    def __init__(self, source: FakeSource, **frames: pl.DataFrame) -> None:
        self.path, self.info, self.quality, self.tables = source.path, source.info, source.quality, source.tables
        self._source, self._frames, self.check = source, frames, source.check

    def processes(self) -> pl.DataFrame:
        return self._frames.get("processes", self._source.processes())

    def read(self, table: str, part: Part = "core") -> Chunk:
        chunk = self._source.read(table, part)
        frame = self._frames.get(f"{table}_{part}", chunk.frame)
        return Chunk(frame, chunk.names)


def starts(source: Door, table: str = "ops") -> list[int]:
    return source.read(table).frame["start_ns"].to_list()


def test_what_is_right_passes_untouched() -> None:
    source = FakeSource({"ops": [op(10, 20, call=1), comm(15, 30)], "calls": [call(5, 8, id=1)]})
    behind = Door(source)
    for table in ("ops", "calls"):
        for part in ("core", "detail", "launch"):
            assert behind.read(table, part).frame.equals(source.read(table, part).frame)  # type: ignore[arg-type]
    assert behind.quality.notes == []
    assert admitted(behind) is behind


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (op(30, 20), "whose end is before the start"),
        (op(20, 20 + 10 * YEAR), "whose length is more than the capture's"),
        (op(20, 20 + 2 * 86_400 * 10**9), "whose length is more than the capture's"),
        (op(-(2**63), 30), "at an impossible time (over a year from the others)"),
        (op(2**63 - 1, 2**63 - 1), "at an impossible time (over a year from the others)"),
        (op(20, 2**62), "at an impossible time (over a year from the others)"),
        (op(20 * YEAR, 20 * YEAR + 5), "at an impossible time (over a year from the others)"),
        (op(20, 30) | {"start_ns": None}, "without a time"),
        (op(20, 30) | {"end_ns": None}, "without a time"),
        (op(20, 30) | {"kind": None}, "without kind"),
        (op(20, 30) | {"proc": None}, "of no known process"),
    ],
)
def test_rows_that_cannot_be_are_left_out_and_counted(row: dict[str, Any], why: str) -> None:
    good = [op(10, 20), op(40, 50), op(60, 70)]
    source = FakeSource({"ops": good})
    core = pl.concat([source.read("ops").frame, source.read("ops").frame[:1]])
    for name in ("start_ns", "end_ns", "kind", "proc"):
        values = [*core[name].to_list()[:-1], row.get(name, 0)]
        core = core.with_columns(pl.Series(name, values, dtype=core.schema[name]))
    detail = pl.concat([source.read("ops", "detail").frame, source.read("ops", "detail").frame[:1]])
    behind = Door(Delivers(source, ops_core=core, ops_detail=detail))
    assert starts(behind) == [10, 40, 60]
    assert behind.read("ops", "detail").frame.height == 3
    (note,) = map(str, behind.quality.notes)
    assert note.split(": gemm on stream 7")[0] == f"ops: left out 1 row {why}"


def test_a_stated_length_of_the_capture_bounds_events() -> None:
    second = 10**9
    assert starts(door(10 * second, ops=[op(1, 2), op(3, 3 + 21 * second), op(4, 5 + 22 * second)])) == [1, 3]
    # Where most are longer than the whole capture, it is the capture's length that is wrong.
    assert starts(door(1, ops=[op(1, 2), op(3, 4 * second), op(4, 5 * second)])) == [1, 3, 4]


def test_a_table_without_a_usable_row_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        Profile([FakeSource({"ops": [op(30, 20), op(50, 40)]})]).table("ops")
    assert str(refused.value) == (
        "fake.sqlite: ops: none of 2 rows is usable (rows whose end is before the start); export or record it again"
    )


def test_values_out_of_bounds_are_unknown() -> None:
    row = {"start_ns": 1, "end_ns": 2, "op": "ncclSend", "tid": 1, "depth": 0}
    behind = door(
        comms=[
            row | {"bytes": -5, "comm_rank": 1, "comm_size": 2},
            row | {"bytes": 2**60, "comm_rank": 2, "comm_size": 2},
            row | {"bytes": 64, "comm_rank": -1, "comm_size": 0},
            row | {"bytes": 64, "depth": None},
        ]
    )
    frame = behind.read("comms").frame
    assert frame.select("bytes", "comm_rank", "comm_size", "depth").rows() == [
        (None, 1, 2, 0),
        (None, None, None, 0),
        (64, None, None, 0),
        (64, None, None, 0),
    ]
    assert behind.quality.notes == [
        "comms: 2 values of bytes cannot be (-5): treated as unknown",
        "comms: 1 value of comm_rank cannot be (-1): treated as unknown",
        "comms: 1 value of comm_size cannot be (0): treated as unknown",
        "comms: 1 value of comm_size cannot be (not above comm_rank): treated as unknown",
        "comms: 1 value of comm_rank cannot be (not below comm_size): treated as unknown",
        "comms: 1 row without depth: treated as 0",
    ]


def test_numbers_that_are_none_are_left_out() -> None:
    sample = {"device": 0, "name": "SM Active"}
    rows = [sample | {"start_ns": at, "value": v} for at, v in enumerate([1.0, float("inf"), float("nan"), None])]
    behind = door(counters=rows)
    assert behind.read("counters").frame["value"].to_list() == [1.0]


def test_something_stands_for_what_is_missing() -> None:
    profile = Profile(
        [
            FakeSource(
                {
                    "ops": [op(1, 2) | {"name": None, "device": None, "stream": None, "copy_kind": None}],
                    "calls": [call(0, 1) | {"name": None, "tid": None}],
                    "ranges": [nvtx(0, 3, "step 0") | {"tid": None, "closed": None}],
                }
            )
        ]
    )
    (kernel,) = profile.ops.to_dicts()
    assert (kernel["device"], kernel["stream"], kernel["copy_kind"], kernel["role"]) == (0, -1, "none", "compute")
    (launch,) = profile.calls.to_dicts()
    assert launch["tid"] == -1
    assert {profile.names[kernel["name"]], profile.names[launch["name"]]} == {"(no name)"}
    assert profile.ranges.select("tid", "closed").rows() == [(-1, True)]
    assert "ops: 1 row without name: treated as (no name), and counted as compute" in profile.notes
    assert "calls: 1 row without name: treated as (no name)" in profile.notes
    assert "calls: 1 row without tid: treated as -1" in profile.notes


def test_ids_of_names_that_are_not_there() -> None:
    source = FakeSource({"ops": [op(1, 2, "a"), op(3, 4, "b")]})
    frame = source.read("ops").frame.with_columns(pl.Series("name", [0, 7], dtype=pl.UInt32))
    chunk = Door(Delivers(source, ops_core=frame)).read("ops")
    assert chunk.names.gather(chunk.frame["name"]).to_list() == ["a", "(no name)"]


def test_repeated_ops_and_calls_are_left_out() -> None:
    ops = [op(1, 5, call=1), op(1, 5, call=1), op(1, 5, call=2), op(1, 5), op(1, 5)]
    behind = door(ops=ops, calls=[call(0, 1, id=1), call(0, 1, id=1), call(0, 1)])
    assert behind.read("ops").frame["correlation"].to_list() == [1, 2, None, None]
    assert behind.read("calls").frame["correlation"].to_list() == [1, None]
    assert behind.read("ops", "detail").frame.height == 4
    assert behind.quality.notes == [
        "ops: left out 1 row that repeats another",
        "calls: left out 1 row that repeats another",
    ]


def test_alike_nodes_of_one_graph_are_no_repetition() -> None:
    graph = [op(1, 5, "a", call=9), op(1, 5, "a", call=9), op(6, 8, "b", call=9)]
    assert starts(door(ops=graph)) == [1, 1, 6]


def test_rows_out_of_order_are_sorted() -> None:
    source = FakeSource({"ops": [op(10, 20), op(30, 40), op(50, 60)]})
    core, detail = source.read("ops").frame, source.read("ops", "detail").frame
    order = [2, 0, 1]
    detail = detail.with_columns(pl.Series("row", [1, 2, 3], dtype=pl.Int64))
    behind = Door(Delivers(source, ops_core=core[order], ops_detail=detail[order]))
    assert starts(behind) == [10, 30, 50]
    assert behind.read("ops", "detail").frame["row"].to_list() == [1, 2, 3]


def test_a_detail_read_alone_has_the_rows_of_the_core() -> None:
    assert door(ops=[op(10, 20), op(40, 30), op(50, 60)]).read("ops", "detail").frame.height == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (pl.col("start_ns").cast(pl.Float64), "fake.sqlite: ops.start_ns is Float64, not Int64"),
        (pl.col("name").cast(pl.String), "fake.sqlite: ops.name is String, not UInt32"),
    ],
)
def test_other_types_are_refused_by_name(change: pl.Expr, says: str) -> None:
    source = FakeSource({"ops": [op(1, 2)]})
    with pytest.raises(BadInput, match=says):
        Door(Delivers(source, ops_core=source.read("ops").frame.with_columns(change))).read("ops")


def test_a_missing_column_is_refused_by_name() -> None:
    source = FakeSource({"ops": [op(1, 2)]})
    with pytest.raises(BadInput, match=r"fake\.sqlite: ops has no column stream"):
        Door(Delivers(source, ops_core=source.read("ops").frame.drop("stream"))).read("ops")


def test_parts_of_different_length_are_refused() -> None:
    source = FakeSource({"ops": [op(1, 2), op(3, 4)]})
    behind = Door(Delivers(source, ops_detail=source.read("ops", "detail").frame[:1]))
    with pytest.raises(BadInput, match="ops has 2 rows in one part and 1 in the other"):
        behind.read("ops", "detail")


def test_processes() -> None:
    source = FakeSource({"ops": [op(1, 2), op(3, 4) | {"proc": 1}]})
    frame = source.processes().with_columns(
        pl.Series("rank", [-3, 2**31 - 1], dtype=pl.Int32),
        pl.Series("world_size", [0, 8], dtype=pl.Int32),
        pl.Series("setup", ["rank=0; pp=5/2 dp=1/2", None], dtype=pl.String),
    )
    profile = Profile([Delivers(source, processes=frame)])
    assert profile.ranks.select("rank", "rank_from", "world_size").rows() == [
        (0, "order of pids", None),
        (1, "order of pids", 8),
    ]
    assert "processes: 2 values of rank cannot be (-3): treated as unknown" in profile.notes
    assert "the setup label rank=0 says pp=5/2: ignored, since it is not a valid mesh axis" in profile.notes
    with pytest.raises(BadInput, match=r"processes\.proc does not count from 0"):
        Door(Delivers(source, processes=frame.with_columns(pl.Series("proc", [0, 2], dtype=pl.Int32)))).processes()


def test_every_column_says_what_becomes_of_a_null() -> None:
    """A column without a rule of its own loses the row: only times, kinds, keys and values are worth that."""
    losing = {(t.name, c.name) for t in TABLES.values() for c in t if c.required and not c.derived and c.name != "rank"}
    allowed = {"start_ns", "end_ns", "kind", "value", "chain", "depth", "row", "dur_ns", "kernel"}
    allowed |= {"address", "segment", "segment_bytes", "state"}  # a block of the allocator is nothing else
    allowed |= {"op_id", "after_id"}  # a dependency is between two ops
    assert {column for _, column in losing} <= allowed
    assert all(c.nullable for t in TABLES.values() for c in t if c.part == "detail")

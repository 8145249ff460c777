"""No query runs away: what takes too long, too much memory, or is not wanted any more ends with its process."""

from __future__ import annotations

import os
import threading

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_query import DEAF
from fake import make, nvtx, op
from stepscope import progress
from stepscope.errors import BadInput
from stepscope.files import budget
from stepscope.sql import process
from stepscope.sql.query import query
from stepscope.sql.tops import tops

_ENDLESS = "SELECT count(*) AS n FROM range(10000000) a(n), range(10000000) b(m) WHERE n + m = 7"


@pytest.fixture
def profile():
    return make(ops=[op(0, 10), op(20, 30)])


@pytest.fixture
def pids(monkeypatch):
    """The processes that were asked."""
    sent: list[int] = []
    send = process.Worker.send

    def watched(self, **message):
        send(self, **message)
        sent.append(self._process.pid)

    monkeypatch.setattr(process.Worker, "send", watched)
    return sent


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("text", [DEAF, _ENDLESS])
def test_a_query_stops_at_its_time(profile, pids, text):
    with pytest.raises(BadInput, match=r"stopped after 0.2 s; .*--timeout"):
        query(profile, text, seconds=0.2)
    assert len(set(pids)) == 1 and _gone(pids[0])
    assert query(profile, "SELECT count(*) AS n FROM ops").rows.rows() == [(2,)]


def test_a_query_stops_where_nobody_wants_it(profile, pids):
    unwanted = threading.Event()
    send = process.Worker.send

    def then_leave(self, **message):
        send(self, **message)
        if "tables" in message:
            unwanted.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process.Worker, "send", then_leave)
        with pytest.raises(progress.Stopped), progress.wanted(unwanted.is_set):
            query(profile, DEAF)
    assert _gone(pids[0])


@pytest.mark.parametrize(
    "text", ["SELECT list_sum(range(1000000000)) AS x", "SELECT length(repeat('x', 4000000000)) AS x"]
)
def test_a_function_keeps_to_the_budget(profile, text):
    budget.keep("512MiB")
    try:
        with pytest.raises(BadInput, match=r"needs more than the 512.0 MiB of the budget"):
            query(profile, text)
    finally:
        budget.keep(None)
    assert query(profile, "SELECT 1 AS one").rows.rows() == [(1,)]


def test_a_worker_answers_again_and_leaves_nothing(profile, pids):
    for n in (1, 2):
        assert query(profile, f"SELECT nr FROM ops LIMIT {n}").rows.height == n
    with pytest.raises(BadInput, match="no table nowhere"):
        query(profile, "SELECT * FROM nowhere")
    assert query(profile, "SELECT 3 AS n").rows.rows() == [(3,)]
    assert len(set(pids)) == 1


def test_a_worker_that_was_ended_while_idle_is_replaced(profile, pids):
    assert query(profile, "SELECT 1 AS n").rows.rows() == [(1,)]
    process._idle[os.getpid()][0]._process.kill()
    process._idle[os.getpid()][0]._process.wait()
    assert query(profile, "SELECT 2 AS n").rows.rows() == [(2,)]


def test_the_folder_that_a_user_is_in_may_go(profile, tmp_path, monkeypatch):
    """DuckDB aborts in a folder that is not there any more: a worker is in none of the user's."""
    folder = tmp_path / "gone"
    folder.mkdir()
    process._end_idle()
    monkeypatch.chdir(folder)
    assert query(profile, "SELECT 1 AS n").rows.rows() == [(1,)]
    folder.rmdir()
    assert query(profile, "SELECT 2 AS n").rows.rows() == [(2,)]
    process._end_idle()
    assert query(profile, "SELECT 3 AS n").rows.rows() == [(3,)]


def test_a_process_that_is_gone_is_said(profile, monkeypatch):
    monkeypatch.setattr(process, "_START", "import sys; print('{}', flush=True); sys.stdin.readline(); sys.exit(9)")
    process._end_idle()
    with pytest.raises(BadInput, match=r"the query ended its process \(status 9\)"):
        query(profile, "SELECT 1 AS n")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_the_time_must_be_one(profile, seconds):
    with pytest.raises(BadInput, match="--timeout"):
        query(profile, "SELECT 1 AS n", seconds=seconds)


# -- types ---------------------------------------------------------------------------------------------------------

TYPES = [
    ("1::TINYINT", 1), ("18446744073709551615::UBIGINT", "18446744073709551615"), ("1::UHUGEINT", 1),
    ("170141183460469231731687303715884105727::HUGEINT", "170141183460469231731687303715884105727"),
    ("1.5::FLOAT", 1.5),
    ("-9223372036854775809::HUGEINT", "-9223372036854775809"), ("sum(9223372036854775807)", 9223372036854775807),
    ("[9223372036854775808::HUGEINT]", "[9223372036854775808]"), ("1.5::DECIMAL(30, 2)", 1.5), ("0.1", 0.1),
    ("1234567890123456789.01::DECIMAL(30, 2)", "1234567890123456789.01"), ("1e300", 1e300),
    ("[1234567890123456789.01::DECIMAL(30, 2)]", "[1234567890123456789.01]"),
    ("true", True), ("'a'", "a"), ("'a'::ENUM('a', 'b')", "a"), ("NULL", None),
    ("'\\xFF'::BLOB", "\\xFF"), ("DATE '2020-01-02'", "2020-01-02"), ("DATE 'infinity'", "infinity"),
    ("TIME '01:02:03'", "01:02:03"), ("TIMETZ '01:02:03+01'", "01:02:03+01"),
    ("TIMESTAMP '2020-01-01 00:00:00'", "2020-01-01 00:00:00"),
    ("TIMESTAMP_NS '2020-01-01 00:00:00.123456789'", "2020-01-01 00:00:00.123456789"),
    ("TIMESTAMPTZ '2020-01-01 00:00:00+00'", "2020-01-01 00:00:00+00"), ("INTERVAL 3 DAYS", "3 days"),
    ("'5c857669-6505-46c3-91b9-4771f0fafde3'::UUID", "5c857669-6505-46c3-91b9-4771f0fafde3"), ("'101'::BIT", "101"),
    ("123456789012345678901234567890::BIGNUM", "123456789012345678901234567890"),
    ("[1, NULL]", [1, None]), ("[[1], []]", [[1], []]), ("[]", []), ("[1.5::DECIMAL(9, 1)]", [1.5]),
    ("array_value(1, 2)", [1, 2]), ("[DATE '2020-01-02']", "[2020-01-02]"), ("{'a': 1, 'b': 'x'}", {"a": 1, "b": "x"}),
    ("MAP {1: 2}", [{"key": 1, "value": 2}]), ("MAP {'key': [1]}", [{"key": "key", "value": [1]}]),
    ("MAP {[1]: 2}", [{"key": [1], "value": 2}]), ("MAP {}", []), ("union_value(k := 1)", "1"), ("ROW(1, 2)", "(1, 2)"),
    ("1", 1), ("1::BIGINT", 1), ("1::SMALLINT", 1), ("1::USMALLINT", 1), ("1::UTINYINT", 1),
    ("4294967295::UINTEGER", 4294967295),
    ("TIMESTAMP_S '2020-01-01 00:00:00'", "2020-01-01 00:00:00"),
    ("TIMESTAMP_MS '2020-01-01 00:00:00.123'", "2020-01-01 00:00:00.123"),
    ("'2020-01-01 00:00:00+00'::TIMESTAMPTZ_NS", "2020-01-01 00:00:00+00"),
    ("TIME_NS '01:02:03.123456789'", "01:02:03.123456789"), ("'POINT(1 2)'::GEOMETRY", "POINT (1 2)"),
    ("1::VARIANT", "1"), ("get_type(1)", "INTEGER"),
    ("histogram(n)", [{"key": 0, "value": 1}]), ("'{\"a\":1}'::JSON", '{"a":1}'),
]  # fmt: skip


def test_no_type_is_left_out():
    """Of those that DuckDB names: an alias is one of a type that is here."""
    database = duckdb.connect()
    named = {kind for (kind,) in database.sql("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()}
    values = ", ".join(f"typeof({value})" for value, _ in TYPES)
    seen = database.sql(f"SELECT {values} FROM range(1) AS r(n)").fetchall()[0]
    lists = {"LIST" for kind in seen if kind.endswith("[]")} | {"ARRAY" for kind in seen if kind.endswith("[2]")}
    assert named <= {kind.strip('"').partition("(")[0] for kind in seen} | lists


def test_all_types_come_back_together(profile):
    values = ", ".join(f"{value} AS x{at}" for at, (value, _) in enumerate(TYPES))
    (row,) = query(profile, f"SELECT {values} FROM range(1) AS r(n)").rows.to_dicts()
    assert list(row.values()) == [expected for _, expected in TYPES]


@pytest.mark.parametrize(("value", "expected"), TYPES, ids=[value for value, _ in TYPES])
def test_every_type_comes_back(profile, value, expected):
    (row,) = query(profile, f"SELECT {value} AS x FROM range(1) AS r(n); -- the end").rows.to_dicts()
    assert row == {"x": expected}


def test_a_pivot_names_its_columns(profile):
    rows = query(profile, "FROM (PIVOT (SELECT rank, kind FROM ops) ON kind IN ('kernel') USING count(*))").rows
    assert rows.rows() == [(0, 2)]
    with pytest.raises(BadInput, match=r"PIVOT that does not name its columns is refused; name them: .* IN \("):
        query(profile, "PIVOT ops ON kind USING count(*)")


# -- the innermost range -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=30))
def test_the_last_interval_over_each_place(lengths):
    first = np.array([a for a, _ in lengths], dtype=np.int64)
    last = first + np.array([n for _, n in lengths], dtype=np.int64)
    found = tops(first, last)
    for place, top in enumerate(found):
        over = [i for i in range(len(first)) if first[i] <= place < last[i]]
        assert top == (over[-1] if over else -1)


#: Looking through all ranges for each moment: what the function says it does, word by word.
_SLOWLY = (
    "(SELECT first(name ORDER BY kind = 'pushpop' AND tid IS NOT DISTINCT FROM c.tid DESC, start_ns DESC, end_ns, nr"
    " DESC) FROM ranges WHERE own AND rank = c.rank AND start_ns <= c.at_ns AND c.at_ns < end_ns)"
)


def test_the_enclosing_range_is_that_of_a_search_through_all():
    random = np.random.default_rng(3)
    ranges = []
    for n in range(60):
        start = int(random.integers(0, 500))
        kind = "startend" if n % 3 == 0 else "pushpop"
        end = start + int(random.integers(0, 120))
        ranges.append(nvtx(start, end, f"r{n}", tid=int(random.integers(1, 4)), kind=kind))
    asked = pl.DataFrame({"rank": [0] * 2000, "tid": [*range(4)] * 500, "at_ns": [n // 4 for n in range(2000)]})
    told = query(
        make(ops=[op(0, 10)], ranges=ranges),
        f"SELECT enclosing_range(c.rank, c.tid, c.at_ns) AS fast, {_SLOWLY} AS slow FROM asked c",
        answers={"asked": asked},
    ).rows
    assert told.height == 2000 and told["fast"].n_unique() > 20
    assert told["fast"].to_list() == told["slow"].to_list()

"""The tables as SQL has them: names as texts, rows that can be joined, and only those read that are mentioned."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake import FakeSource, Log, call, comm, make, nvtx, op
from stepscope.errors import BadInput, CannotAnswer
from stepscope.model.profile import Profile
from stepscope.sql.catalogue import catalogue
from stepscope.sql.query import query


def profile_of(log: Log | None = None) -> Profile:
    tables = {
        "ops": [op(10, 30, call=1), comm(20, 50, call=2), op(60, 65, "sum", call=3)],
        "calls": [call(1, 2, 1), call(3, 4, 2), call(52, 53, 3, "cuLaunchKernel")],
        "ranges": [nvtx(0, 9, "step 0"), nvtx(0, 5, "layer"), nvtx(51, 60, "step 1")],
    }
    return Profile([FakeSource(tables, log=log)])


def rows(text: str, profile: Profile | None = None):
    return query(profile or profile_of(), text).rows.rows()


def test_names_are_texts_and_durations_are_there():
    found = rows("SELECT nr, name, role, kind, dur_ns FROM ops ORDER BY nr")
    nccl = "ncclDevKernel_SendRecv"
    assert found == [
        (0, "gemm", "compute", "kernel", 20),
        (1, nccl, "comm", "kernel", 30),
        (2, "sum", "compute", "kernel", 5),
    ]


def test_rows_refer_to_each_other():
    joined = "SELECT o.name, c.name FROM ops o JOIN calls c ON c.rank = o.rank AND c.nr = o.launch ORDER BY o.nr"
    with pytest.raises(BadInput, match="two columns are called name"):
        rows(joined)
    named = joined.replace("c.name FROM", "c.name AS call FROM")
    assert [r[1] for r in rows(named)] == ["cudaLaunchKernel", "cudaLaunchKernel", "cuLaunchKernel"]
    nested = "SELECT r.name, p.name AS parent FROM ranges r JOIN ranges p ON p.rank = r.rank AND p.nr = r.parent"
    assert rows(nested) == [("layer", "step 0")]


def test_numbers_of_rows_are_a_rank_s_own():
    both = make(ops=[op(0, 1), op(2, 3), op(0, 1, proc=1), op(5, 6, proc=1)])
    assert rows("SELECT rank, nr FROM ops ORDER BY ALL", both) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT 1 AS one", set()),
        ("SELECT * FROM tables", set()),
        ("SELECT * FROM columns", set()),
        ("SELECT * FROM ranks", set()),
        ("SELECT * FROM calls", {"calls.core"}),
        ("SELECT 'ops' AS o FROM ranges -- ops", {"ranges.core"}),
        ("SELECT * FROM Calls_Detail", {"calls.core", "calls.detail"}),
        ("SELECT enclosing_range(0, 1, 3) AS r", {"ranges.core"}),
    ],
)
def test_only_what_is_mentioned_is_read(text, read):
    log = Log()
    query(profile_of(log), text)
    assert set(log.read) == read


def test_a_table_is_read_once_for_all_queries():
    log = Log()
    profile = profile_of(log)
    for _ in range(3):
        query(profile, "SELECT count(*) AS n FROM calls a JOIN calls b USING (nr)")
    assert log.read == ["calls.core"]


def test_every_table_has_the_columns_that_it_lists():
    everything = profile_of()
    for table in catalogue().values():
        if table.of is not None and not everything.has(table.of):
            with pytest.raises(CannotAnswer, match=f"no table {table.of}"):
                query(everything, f"SELECT * FROM {table.name}")
            continue
        if table.name in ("meetings", "arrivals"):
            continue  # the profile has one rank; test_cookbook asks them
        assert query(everything, f"SELECT * FROM {table.name}").rows.columns == [c.name for c in table.columns]
        assert all(c.doc for c in table.columns) and table.doc


def test_meetings_have_the_columns_that_they_list(job):
    for name in ("meetings", "arrivals"):
        assert job.profile.sql(f"FROM {name}").rows.columns == [c.name for c in catalogue()[name].columns]


def test_no_communication_is_no_answer_and_not_no_rows():
    alone = make(ops=[op(0, 1)])
    for name in ("exposures", "meetings", "arrivals"):
        with pytest.raises(CannotAnswer, match="no communication"):
            query(alone, f"SELECT * FROM {name}")


def test_a_with_may_have_the_name_of_a_table_that_was_not_recorded():
    assert rows("WITH comms AS (SELECT 1 AS a) SELECT a FROM comms") == [(1,)]


def test_windows_are_those_of_the_commands(job):
    asked = job.profile.sql("SELECT rank, index, gpu_start_ns, gpu_end_ns, ops FROM windows WHERE chosen ORDER BY rank")
    truth = [tuple(r[k] for k in asked.rows.columns) for r in job.truth["window"]["rows"]]
    assert asked.rows.rows() == truth
    counted = job.profile.sql(
        "SELECT rank, index, any_value(w.ops) = count(*) AS same"
        " FROM windows w JOIN window_ops USING (rank, kind, index) GROUP BY ALL"
    )
    assert counted.rows["same"].all() and counted.rows.height == 12


def test_chunks_stand_beside_the_capture():
    chunked = make(
        ops=[comm(10, 20, call=1), op(30, 40, call=2)],
        calls=[call(1, 2, 1), call(11, 12, 2)],
        ranges=[nvtx(0, 9, "forward chunk 1 backward chunk 0"), nvtx(10, 19, "forward chunk 2 backward chunk 1")],
    )
    found = rows("SELECT kind, index, ops, chosen FROM windows ORDER BY ALL", chunked)
    assert found == [("capture", 0, 2, True), ("chunk", 0, 1, False), ("chunk", 1, 1, True)]
    assert rows("SELECT kind, index, exposed_ns FROM exposures ORDER BY ALL", chunked) == [
        ("capture", 0, 10),
        ("chunk", 0, 10),
    ]


def test_the_enclosing_range_is_that_of_the_origins(job):
    text = (
        "SELECT count(*) AS n, count(*) FILTER"
        " (WHERE range IS DISTINCT FROM enclosing_range(o.rank, o.tid, launched_ns)) AS other FROM origins o"
    )
    n, other = job.profile.sql(text).rows.row(0)
    assert n > 2000 and other == 0


intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12)


@settings(max_examples=25)  # each is a query of its own
@given(intervals)
def test_the_union_is_what_counting_instants_gives(spans):
    instants = {t for start, length in spans for t in range(start, start + length)}
    values = ", ".join(f"({s}, {s + n})" for s, n in spans) or "(NULL, NULL)"
    ((found,),) = rows(f"SELECT union_ns(a, b) AS u FROM (VALUES {values}, (NULL, 3), (3, NULL)) v(a, b)")
    assert (found or 0) == len(instants) and (found is None) == (not spans)


@settings(max_examples=25)
@given(*[st.integers(0, 12)] * 4)
def test_the_overlap_is_what_counting_instants_gives(a, n, b, m):
    common = len(set(range(a, a + n)) & set(range(b, b + m)))
    text = f"SELECT overlap_ns({a}, {a + n}, {b}, {b + m}) AS ns, overlapping({a}, {a + n}, {b}, {b + m}) AS yes"
    ns, yes = rows(text)[0]
    assert ns == common and (yes == (common > 0) or not (n and m))


def test_an_interval_that_is_not_known_has_no_overlap():
    for edges in ("NULL, 9, 0, 9", "0, NULL, 0, 9", "0, 9, NULL, 9", "0, 9, 0, NULL"):
        assert rows(f"SELECT overlap_ns({edges}) AS ns, overlapping(0, 9, NULL, NULL) AS yes") == [(None, None)]


def test_types_are_those_of_answers():
    text = (
        "SELECT sum(nr) AS whole, 1.5 AS decimal, avg(nr) AS mean, true AS yes, NULL AS nothing,"
        " DATE '2026-01-02' AS day, [1, 2] AS list, {'a': 1} AS struct,"
        " 170141183460469231731687303715884105727 AS huge, 1::UTINYINT AS small FROM ops"
    )
    found = query(profile_of(), text).rows
    assert found.row(0)[:6] == (3, 1.5, 1.0, True, None, "2026-01-02")
    assert found.row(0)[6:8] == ([1, 2], {"a": 1}) and found["huge"][0] == str(2**127 - 1)
    assert found.schema["whole"] == found.schema["small"] == pl.Int64
    none = query(profile_of(), "SELECT nr, name, dur_ns / 2 AS half FROM ops WHERE false").rows
    assert none.schema == {"nr": pl.Int64, "name": pl.String, "half": pl.Float64} and none.height == 0


def test_rows_beyond_the_limit_are_said():
    some = query(profile_of(), "SELECT * FROM range(10) t(n)", limit=4)
    assert some.rows["n"].to_list() == [0, 1, 2, 3] and [n.code for n in some.notes] == ["first-rows"]
    assert "first 4 rows" in some.notes[0]
    for limit in (10, 0):
        every = query(profile_of(), "SELECT * FROM range(10) t(n)", limit=limit)
        assert every.rows.height == 10 and not every.notes
    with pytest.raises(BadInput, match="--limit -1"):
        query(profile_of(), "SELECT 1", limit=-1)


def test_what_nobody_asked_for_is_not_computed():
    """A trillion rows, of which one is shown."""
    assert query(profile_of(), "SELECT a.n FROM range(1000000) a(n), range(1000000) b(n)", limit=1).rows.height == 1

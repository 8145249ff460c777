"""What passes and what is refused; and, should the parser ever let something through, what stands behind it."""

from __future__ import annotations

import duckdb
import pytest

from fake import make, op
from stepscope.errors import BadInput
from stepscope.sql.database import answer, database
from stepscope.sql.query import query
from stepscope.sql.statement import Query

PASSES = (
    "SELECT count(*) AS n FROM ops",
    "select 1 as a;",
    "WITH ops AS (SELECT * FROM ops WHERE nr = 0) SELECT * FROM ops",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT n FROM t",
    "SELECT nr FROM ops UNION ALL SELECT nr FROM main.ops",
    "SELECT nr FROM temp.main.OPS INTERSECT SELECT 0",
    "FROM ops",
    "VALUES (1)",
    "DESCRIBE ops",
    "DESCRIBE SELECT name FROM ops",
    "EXPLAIN SELECT * FROM ops",
    "/* é */ EXPLAIN ANALYZE SELECT * FROM ops -- done",
    "SELECT * FROM range(3) AS r(n) JOIN ops ON n = nr",
    "SELECT unnest([1, 2]) AS n",
    "SELECT 'DROP TABLE ops; COPY' AS text",
    "SELECT (SELECT max(nr) FROM ops) AS n, EXISTS (SELECT 1 FROM ops) AS e",
    "SELECT nr, sum(dur_ns) OVER (ORDER BY nr) AS s FROM ops QUALIFY s > 0",
)
REFUSED = (
    "INSERT INTO ops SELECT * FROM ops",
    "UPDATE ops SET nr = 1",
    "DELETE FROM ops",
    "TRUNCATE ops",
    "CREATE TABLE t AS SELECT * FROM ops",
    "CREATE OR REPLACE TEMP VIEW ops AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "DROP VIEW ops",
    "ALTER TABLE ops ADD COLUMN x INTEGER",
    "COPY ops TO '{file}'",
    "COPY (SELECT 1) TO '{file}' (FORMAT parquet)",
    "EXPORT DATABASE '{file}'",
    "IMPORT DATABASE '{file}'",
    "ATTACH '{file}' AS other",
    "DETACH memory",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA version",
    "PRAGMA database_list",
    "SET threads = 1",
    "SET enable_external_access = true",
    "RESET threads",
    "CALL pragma_version()",
    "BEGIN",
    "COMMIT",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "SHOW TABLES",
    "SUMMARIZE ops",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT * FROM (SUMMARIZE ops)",
    "SELECT 1; DROP VIEW ops",
    "",
    "-- nothing",
    "WITH x AS (INSERT INTO ops VALUES (1) RETURNING 1) SELECT * FROM x",
    "WITH x AS (DELETE FROM ops) SELECT 1",
    "SELECT * FROM (WITH x AS (UPDATE ops SET nr = 1 RETURNING nr) SELECT * FROM x)",
    "EXPLAIN INSERT INTO ops SELECT 1",
    "EXPLAIN ANALYZE COPY ops TO '{file}'",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
    "EXPLAIN EXPLAIN SELECT 1",
    "EXPLAIN (FORMAT JSON) COPY ops TO '{file}'",
    "SELECT * FROM '{file}'",
    'SELECT * FROM "{file}"',
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM ops, read_text('{file}')",
    "SELECT (SELECT content FROM read_text('{file}'))",
    "SELECT * FROM ops WHERE name IN (SELECT content FROM read_blob('{file}'))",
    "SELECT * FROM parquet_scan('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('ops')",
    "SELECT * FROM json_execute_serialized_sql('')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{file}')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM other.main.ops",
    "SELECT * FROM system.main.duckdb_settings",
    "SELECT * FROM memory.main.sqlite_master",
    "SELECT * FROM nothing",
    "SELECT nothing FROM ops",
    "SELECT a.nr, b.nr FROM ops a, ops b",
    "SELECT getenv('HOME')",
    "SELECT ?",
    "SELEC 1",
    "SELECT \ud800",
)


@pytest.fixture
def profile():
    return make(ops=[op(0, 10), op(20, 25)])


@pytest.mark.parametrize("text", PASSES)
def test_reading_passes(profile, text):
    assert query(profile, text).rows.height


@pytest.mark.parametrize("text", REFUSED)
def test_all_else_is_refused_in_one_line(profile, text, tmp_path):
    file = tmp_path / "secret.csv"
    file.write_text("secret\n")
    with pytest.raises(BadInput) as refused:
        query(profile, text.format(file=file))
    assert "\n" not in str(refused.value) and "secret\n" not in str(refused.value)
    assert refused.value.hint
    assert [p.name for p in tmp_path.iterdir()] == ["secret.csv"] and file.read_text() == "secret\n"


@pytest.mark.parametrize(
    "text", ["DELETE FROM ops", "SET threads = 1", "SELECT * FROM read_text('x')", "PRAGMA version"]
)
def test_the_line_says_what_is_allowed(profile, text):
    with pytest.raises(BadInput, match=r"SELECT \(WITH\), EXPLAIN of one, DESCRIBE"):
        query(profile, text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t(a INTEGER)",
        "COPY ops TO '{file}'",
        "COPY (SELECT 1) TO '{file}'",
        "SELECT * FROM read_text('{file}')",
        "ATTACH '{file}' AS other",
        "EXPORT DATABASE '{file}'",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "SET enable_external_access = true",
        "SET temp_directory = '{file}'",
        "SELECT * FROM profile",
    ],
)
def test_behind_the_parser_there_is_nothing_to_reach(profile, text, tmp_path):
    """The same database without the check: DuckDB itself refuses."""
    (tmp_path / "there").write_text("secret")
    blind = Query(text.format(file=tmp_path / "there"), frozenset({"ops"}), frozenset(), frozenset(), explains=False)
    with pytest.raises(BadInput), database() as connection:
        answer(connection, blind, {"ops": profile.ops}, 1 << 30, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["there"] and (tmp_path / "there").read_text() == "secret"


def test_a_query_leaves_nothing_for_the_next(profile):
    assert query(profile, "WITH mine AS (SELECT 1 AS a) SELECT a FROM mine").rows.rows() == [(1,)]
    with pytest.raises(BadInput, match="no table mine"):
        query(profile, "SELECT * FROM mine")


def test_the_version_of_duckdb_is_one_that_needs_no_pyarrow():
    assert int(duckdb.__version__.partition(".")[0]) >= 2

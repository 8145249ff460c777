"""`stepscope sql` as users run it, and the method of a profile."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from stepscope.cli.main import run
from stepscope.errors import extra
from stepscope.render import FORMATS, render

QUERY = (
    "SELECT rank, count(*) AS kernels, sum(dur_ns) AS total_ns FROM ops WHERE kind = 'kernel'"
    " GROUP BY rank ORDER BY rank"
)


#: Runs a command line, and says when its query begins: its tables are with the process that answers.
WAITING = """
import signal
import sys
from stepscope.cli.main import run
from stepscope.sql.process import Worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where whoever runs the tests is in the background
send = Worker.send
def sent(self, **message):
    send(self, **message)
    if "tables" in message:
        print("running", self._process.pid, flush=True)
Worker.send = sent
sys.exit(run(["sql", *sys.argv[1:]]))
"""


@pytest.fixture
def counts(job):
    """Kernels by rank, as `info` has them."""
    return job.profile.info().rows["kernels"].to_list()


def test_a_table(job, counts, capsys):
    assert run(["sql", str(job.folder), QUERY, "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("sql: 2 files") and f"   0      {counts[0]}" in out and " ms" in out


def test_every_format(job, counts, capsys, tmp_path):
    assert run(["sql", str(job.folder), QUERY, "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "stepscope/1" and answer["command"] == "sql" and answer["profile"]["ranks"] == 4
    assert [r["kernels"] for r in answer["rows"]] == counts and isinstance(answer["rows"][0]["total_ns"], int)
    for suffix, read in ((".csv", pl.read_csv), (".parquet", pl.read_parquet)):
        assert run(["sql", str(job.folder), QUERY, "-o", str(tmp_path / f"a{suffix}")]) == 0
        assert read(tmp_path / f"a{suffix}")["kernels"].to_list() == counts
    assert run(["sql", str(job.folder), QUERY, "--format", "md"]) == 0
    assert "| rank | kernels | total |" in capsys.readouterr().out


def test_ranks_files_and_standard_input(job, counts, capsys, tmp_path, monkeypatch):
    (tmp_path / "q.sql").write_text(QUERY)
    assert run(["sql", str(job.folder), str(tmp_path / "q.sql"), "--rank", "1-2", "--format", "csv"]) == 0
    assert [line.split(",")[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["1", str(counts[1])],
        ["2", str(counts[2])],
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 7 AS seven"))
    assert run(["sql", str(job.folder), "-", "--format", "csv"]) == 0
    assert capsys.readouterr().out == "seven\n7\n"


@pytest.mark.parametrize("format", ["table", "json", "csv", "md"])
def test_the_limit_is_said_in_every_format(job, capsys, format):
    assert run(["sql", str(job.folder), "SELECT nr FROM ops", "--limit", "2", "--format", format]) == 0
    said = capsys.readouterr()
    assert "only the first 2 rows are shown" in said.out + said.err


def test_a_thousand_rows_unless_asked_otherwise(job, capsys):
    assert run(["sql", str(job.folder), "SELECT nr FROM ops", "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1001 and "--limit 0 gives all" in said.err


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["DROP TABLE ops"], 2, "DROP is refused; allowed is one statement that reads"),
        (["SELECT * FROM counters"], 3, "no table counters"),
        (["SELECT * FROM missing"], 2, "no table missing; there are ranks, ops"),
        (["missing.sql"], 2, "missing.sql: cannot read it"),
        (["SELECT 1", "--limit", "-3"], 2, "--limit -3"),
        (["SELECT 1", "--rank", "9"], 2, "no rank 9"),
    ],
)
def test_failures_are_one_line(job, capsys, arguments, status, says):
    assert run(["sql", str(job.folder), *arguments]) == status
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_a_profile_is_needed(capsys):
    assert run(["sql", "SELECT 1"]) == 2
    assert "give PROFILE..., then the query" in capsys.readouterr().err


def test_without_the_extra_it_is_named(job, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert run(["sql", str(job.folder), "SELECT 1"]) == 2
    assert capsys.readouterr().err == f"stepscope: sql needs DuckDB; {extra('sql')}\n"


def test_an_old_version_is_named(job, capsys, monkeypatch):
    monkeypatch.setattr("duckdb.__version__", "1.4.2")
    assert run(["sql", str(job.folder), "SELECT 1"]) == 2
    assert "sql needs DuckDB 2, and 1.4.2 is installed" in capsys.readouterr().err


@pytest.mark.slow
def test_it_can_be_interrupted(job):
    """A query that would take years stops at once."""
    endless = "SELECT count(*) AS n FROM range(10000000) a(n), range(10000000) b(m) WHERE n + m = 7"
    command = [sys.executable, "-c", WAITING, str(job.folder), endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            begun, worker = running.stdout.readline().split()
            assert begun == "running"
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130 and said == ("", "stepscope: interrupted\n")
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_as_a_program_it_says_nothing_else(job):
    """DuckDB's bindings complain at exit about what is left open."""
    for text in ("SELECT nr FROM ops", "SELECT nothing FROM ops"):
        command = [sys.executable, "-m", "stepscope", "sql", str(job.folder), text, "--limit", "3", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert len(done.stderr.splitlines()) == (done.returncode != 0), done.stderr


def test_the_method(job, counts):
    result = job.profile.sql(QUERY)
    assert result.rows["kernels"].to_list() == counts and result.command == "sql" and result.ranks == 4
    assert job.profile.sql("SELECT DISTINCT rank FROM ops", rank=[3]).rows.rows() == [(3,)]
    assert job.profile.sql("SELECT nr FROM ops", limit=5).rows.height == 5


@pytest.mark.parametrize("name", ["start_ns", "file", "dur_ns", "x_pct", "x_bytes", "tp_rank", "depth", "change_pct"])
@pytest.mark.parametrize("value", ["1", "1.5", "'a'", "NULL", "true", "[1, 2]", "{'a': 1}", "DATE '2026-01-02'"])
def test_columns_are_called_as_the_user_likes(job, name, value):
    """Whatever name and type, every format has a form for it."""
    text = f"SELECT {value} AS {name}, 200000000000 AS x_start_ns, 'p' AS path, 'r' AS range, 2 AS tp_size"
    result = job.profile.sql(text)
    for format in FORMATS:
        assert render(result, format)

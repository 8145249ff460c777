"""Several runs in one folder, and one capture twice: refused with the list of runs, by every front end."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from stepscope import api
from stepscope.cli.main import run
from stepscope.errors import BadInput
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

_HOUR = 3600 * 10**9


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process with two GPUs, which says no rank."""
    folder = tmp_path_factory.mktemp("run")
    job = Scenario(schedule="1f1b", pp=1, ep=2, dp=1, layers=1, micro_batches=1, steps=2, gpus_per_process=2)
    simulate_to(job, folder / "job")
    return folder / "job" / "node0.sqlite"


def _later(source: Path, path: Path, ns: int, communicators: bool) -> Path:
    """A copy that was captured so much later; with the communicators of the first, or with none."""
    shutil.copy(source, path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?", [ns])
        if not communicators:
            db.execute("DELETE FROM NVTX_EVENTS WHERE jsonText IS NOT NULL OR binaryData IS NOT NULL")
        db.commit()
    return path


def test_runs_at_other_times_are_refused_with_the_list(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _later(capture, tmp_path / "monday.sqlite", 0, communicators=False)
    _later(capture, tmp_path / "tuesday.sqlite", 24 * _HOUR, communicators=False)
    assert run(["stragglers", str(tmp_path), "--no-cache"]) == 2
    said = capsys.readouterr().err
    assert "these files are of 2 runs" in said and said.count("\n") == 1
    assert "1. monday.sqlite (2027-01-01 00:00:00 to" in said and "2. tuesday.sqlite (2027-01-02 00:00:00 to" in said
    assert f"`stepscope diagnose {tmp_path}/monday.sqlite`" in said
    assert f"`stepscope compare {tmp_path}/monday.sqlite --to {tmp_path}/tuesday.sqlite`" in said
    with pytest.raises(BadInput, match="2 runs"):
        api.open(tmp_path, cache=False)


def test_files_of_one_name_are_told_apart_by_their_folders(capture: Path, tmp_path: Path) -> None:
    for n, day in enumerate(("monday", "tuesday")):
        (tmp_path / day).mkdir()
        _later(capture, tmp_path / day / "node0.sqlite", n * 24 * _HOUR, communicators=False)
    with pytest.raises(BadInput, match=r"1\. .*monday/node0\.sqlite .*; 2\. .*tuesday/node0\.sqlite "):
        api.open(tmp_path / "monday", tmp_path / "tuesday", cache=False)


def test_what_it_advises_works(capture: Path, tmp_path: Path) -> None:
    monday = _later(capture, tmp_path / "monday.sqlite", 0, communicators=False)
    tuesday = _later(capture, tmp_path / "tuesday.sqlite", _HOUR, communicators=False)
    assert run(["diagnose", str(monday), "--no-cache"]) == 0
    assert run(["compare", str(monday), "--to", str(tuesday), "--no-cache"]) == 0


def test_a_common_communicator_makes_one_run(capture: Path, tmp_path: Path) -> None:
    """Ranks of one job may be captured one after the other."""
    first = _later(capture, tmp_path / "a.sqlite", 0, communicators=True)
    second = _later(capture, tmp_path / "b.sqlite", _HOUR, communicators=True)
    assert api.open(first, second, cache=False).ranks.height == 4


def test_clocks_of_hosts_may_differ(capture: Path, tmp_path: Path) -> None:
    first = _later(capture, tmp_path / "a.sqlite", 0, communicators=False)
    second = _later(capture, tmp_path / "b.sqlite", 20 * 10**9, communicators=False)
    with closing(sqlite3.connect(second)) as db:
        db.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'another' WHERE name = 'Hostname'")
        db.commit()
    assert api.open(first, second, cache=False).ranks.height == 4


def test_one_capture_under_two_names_is_refused(capture: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(capture, tmp_path / f"{name}.sqlite")
    with pytest.raises(BadInput, match=r"a\.sqlite and .*b\.sqlite hold the same capture; give each capture once"):
        api.open(tmp_path, cache=False)


def test_an_export_as_sqlite_and_as_parquet_is_one_capture(capture: Path, tmp_path: Path) -> None:
    """Of a process that says no rank they were two."""
    shutil.copy(capture, tmp_path / "a.sqlite")
    (folder := tmp_path / "b").mkdir()
    with closing(sqlite3.connect(capture)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            if rows := cursor.fetchall():
                names = [column[0] for column in cursor.description]
                frame = pl.DataFrame(rows, names, orient="row", infer_schema_length=None)
                frame.write_parquet(folder / f"{table}.parquet")
    assert api.open(folder, cache=False).ranks.height == 2
    with pytest.raises(BadInput, match=r"a\.sqlite and .*b hold the same capture; give each capture once"):
        api.open(tmp_path / "a.sqlite", folder, cache=False)


@pytest.mark.parametrize("clock", [{}, {"baseTimeNanoseconds": 1_790_000_000_000_000_000}])
def test_a_trace_beside_what_it_was_unpacked_from_is_refused(tmp_path: Path, clock: dict[str, int]) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 5}
    events = [{**e, "args": {"device": 0, "stream": 7, "correlation": 1}} for e in (call, kernel)]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, **clock})
    (tmp_path / "run.pt.trace.json").write_text(text)
    assert api.open(tmp_path, cache=False).ranks.height == 1
    (tmp_path / "run.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(BadInput, match="hold the same capture; give each capture once"):
        api.open(tmp_path, cache=False)


@pytest.fixture(scope="module")
def two_runs(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "both"
    folder.mkdir()
    _later(capture, folder / "monday.sqlite", 0, communicators=False)
    _later(capture, folder / "tuesday.sqlite", 24 * _HOUR, communicators=False)
    return folder


def _lists_both(said: str) -> bool:
    return "these files are of 2 runs" in said and "monday.sqlite" in said and "tuesday.sqlite" in said


@pytest.mark.parametrize("command", ["serve", "report", "export", "stats", "rules", "sql", "capture verify"])
def test_every_front_end_refuses_several_runs(
    command: str, two_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But `compare` and `gate`, whose sides may be several runs, and `recipe`, which sums up any files as nsys does."""
    more = {
        "report": ["-o", str(tmp_path / "a.html")],
        "export": ["-o", str(tmp_path / "a.pftrace")],
        "sql": ["SELECT 1 AS n"],
    }
    assert run([*command.split(), str(two_runs), *more.get(command, [])]) == 2
    assert _lists_both(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("open", {}), ("run", {"analysis": "breakdown"}), ("sql", {"query": "SELECT 1 AS n"})],
)
def test_agents_are_refused_several_runs(tool: str, arguments: dict[str, str], two_runs: Path) -> None:
    from agent_client import asked
    from stepscope.agent.roots import Roots
    from stepscope.agent.server import server

    answer = asked(server(Roots([two_runs.parent])), tool, profile="both", **arguments)
    assert answer.is_error and answer.structured_content["error"]["code"] == "bad_input"
    assert _lists_both(str(answer.structured_content))


def test_python_refuses_several_runs(two_runs: Path) -> None:
    for ask in (api.open, lambda folder: api.open(str(folder / "*.sqlite"))):
        with pytest.raises(BadInput, match="these files are of 2 runs") as refused:
            ask(two_runs)  # type: ignore[operator]
        assert _lists_both(str(refused.value))

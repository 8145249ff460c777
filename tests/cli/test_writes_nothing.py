"""Nothing is ever written beside an input, or where the command runs, unless its path was given."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import click
import pytest

from stepscope import questions
from stepscope.cli.main import cli, run
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

DATA = Path(__file__).parents[1] / "data"
#: Commands that are not questions: how each is asked about profiles. Those without any write what they are told to.
OWN: dict[str, list[list[str]]] = {
    "stats": [["stats", "{nsys}"]],
    "rules": [["rules", "{nsys}"]],
    "recipe": [["recipe", "cuda_gpu_kern_sum", "{nsys}"], ["recipe", "diff", "{nsys}", "{other}"]],
    "compare": [["compare", "{nsys}", "--to", "{other}"]],
    "gate": [["gate", "{nsys}", "--to", "{other}", "--allow-inconclusive"]],
    "report": [["report", "{nsys}"], ["report", "{torch}", "-o", "{out}/report.html"]],
    "hang": [],  # tests of hang look by themselves: it reads dumps, no profile
    "export": [["export", "{nsys}", "-o", "{out}/job.pftrace"], ["export", "{torch}", "-o", "{out}/job.parquet"]],
    "sql": [["sql", "{nsys}", "SELECT count(*) FROM ops"]],
    "capture": [["capture", "verify", "{nsys}"], ["capture", "verify", "{torch}"]],
    "skill": [],
    "mcp": [],  # tests/agent/test_mcp_stdio.py asks fifty questions and looks
    "serve": [],  # answers requests until it is stopped
    "simulate": [],
    "demo": [],
}
#: The input of questions that a timeline cannot answer.
INPUT = {"roofline": "{ncu}", "memory": "{snapshot}"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By kind, a folder of such files, which may not be written to."""
    root = tmp_path_factory.mktemp("inputs")
    job = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 2, "layers": 2, "micro_batches": 1, "steps": 3}
    found = {}
    for kind, seed, formats in (("nsys", 1, ("nsys",)), ("other", 2, ("nsys",)), ("torch", 1, ("kineto",))):
        simulate_to(Scenario(**job, seed=seed), root / kind, formats)
        found[kind] = root / kind
    # A database in this mode makes even its readers create files beside it.
    with closing(sqlite3.connect(found["nsys"] / "node0.sqlite")) as database:
        database.execute("PRAGMA journal_mode=wal")
    for kind, file in (("ncu", DATA / "ncu" / "raw.csv"), ("snapshot", next((DATA / "h200/memory").glob("*.pickle*")))):
        (root / kind).mkdir()
        found[kind] = Path(shutil.copy(file, root / kind))
    for folder in [root, *(p for p in root.iterdir() if p.is_dir())]:
        folder.chmod(0o555)
    return found


def there(folder: Path) -> dict[str, tuple[int, int]]:
    """All files below it, with their sizes and times."""
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(folder.rglob("*"))}


def lines() -> list[list[str]]:
    asked = [[name, INPUT.get(name, "{nsys}")] for name in questions.names()]
    return [
        *asked,
        *([name, "{torch}"] for name in ("info", "diagnose")),
        *(line for own in OWN.values() for line in own),
    ]


@pytest.mark.parametrize("line", lines(), ids=" ".join)
def test_only_what_was_asked_for_is_written(inputs, line, tmp_path, monkeypatch, capfd):
    if line[0] == "sql":
        pytest.importorskip("duckdb")
    out, here = tmp_path / "out", tmp_path / "here"
    out.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    before = there(inputs["nsys"].parent)
    status = run([word.format(**inputs, out=out) for word in line])
    said = capfd.readouterr()
    assert status in (0, 1, 3), said.err  # answered, checked, or the trace lacks it
    assert there(inputs["nsys"].parent) == before
    assert not there(here)
    assert bool(there(out)) == ("{out}" in " ".join(line))


def test_every_command_is_asked():
    assert set(cli.list_commands(click.Context(cli))) == {*questions.names(), *OWN}

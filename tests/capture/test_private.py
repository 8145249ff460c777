"""The environment in nsys's exports: only known variables stay, verify warns of keys, an anonymized export has none."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stepscope.capture.private import keep_named, secrets_in
from stepscope.cli.main import run
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

KEY = "hf_AbCdEfGhIjKlMnOp0123"
WORD = "correct-horse-battery"
VARIABLES = {
    "HF_TOKEN": KEY, "DATABASE": f"postgres://me:{WORD}@db/x", "MY_PASSWORD": WORD, "NCCL_ALGO": "Ring",
    "SSH_AUTH_SOCK": "/tmp/agent.1", "TOKENIZERS_PARALLELISM": "false", "HOME": "/home/somebody", "MY_OWN": "kept",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    shape = {"schedule": "fsdp", "pp": 1, "dp": 2, "ep": 1, "nodes": 1, "layers": 1, "micro_batches": 1, "steps": 3}
    simulate_to(Scenario(**shape, seed=1), folder, ("nsys",))
    (file,) = folder.glob("*.sqlite")
    return file


@pytest.fixture
def export(plain, tmp_path):
    """As nsys writes it: once by rows, once as a string with zero bytes."""
    file = tmp_path / plain.name
    shutil.copyfile(plain, file)
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
        for name, value in VARIABLES.items():
            row = ("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
            database.execute("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", row)
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:EXECUTABLE', 'python')")
        whole = "\0".join(f"{name}={value}" for name, value in VARIABLES.items())
        database.execute("INSERT INTO StringIds VALUES ((SELECT max(id) + 1 FROM StringIds), ?)", (whole,))
        database.commit()
    return file


def _texts(file: Path) -> str:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT value FROM META_DATA_CAPTURE UNION ALL SELECT value FROM StringIds").fetchall()
    return "\n".join(str(value) for (value,) in rows)


def test_only_known_and_named_variables_stay(export):
    assert keep_named(export, ["MY_OWN"]) == len(VARIABLES) - 2
    data, texts = export.read_bytes(), _texts(export)
    for gone in (KEY, WORD, "somebody", "SSH_AUTH_SOCK"):
        assert gone.encode() not in data  # also not in what is free in the file
    assert texts.count("NCCL_ALGO") == texts.count("MY_OWN") == 2 and "python" in texts
    assert secrets_in(export) == []


def test_the_figures_stay(plain, export, tmp_path):
    keep_named(export)
    answers = []
    for file in (plain, export):
        assert run(["breakdown", str(file), "--no-cache", "-o", str(tmp_path / "answer.json")]) == 0
        answers.append(json.loads((tmp_path / "answer.json").read_text())["rows"])
    assert answers[0] == answers[1]


def test_verify_names_what_looks_like_a_key_and_never_shows_it(export, capsys):
    run(["capture", "verify", str(export), "--format", "json"])
    said = capsys.readouterr()
    (check,) = [row for row in json.loads(said.out)["rows"] if row["check"] == "secrets"]
    assert check["status"] == "warning" and check["found"].endswith("DATABASE, HF_TOKEN, MY_PASSWORD")
    assert KEY not in said.out + said.err and WORD not in said.out + said.err
    keep_named(export)
    run(["capture", "verify", str(export), "--format", "json"])
    assert [r["status"] for r in json.loads(capsys.readouterr().out)["rows"] if r["check"] == "secrets"] == ["ok"]


@pytest.mark.parametrize("name", ["job.pftrace", "job.json", "job.parquet"])
def test_an_anonymized_export_has_none_of_it(export, tmp_path, name):
    assert run(["export", str(export), "--anonymize", "--no-cache", "-o", str(tmp_path / name)]) == 0
    out = tmp_path / name
    files = [f for f in out.rglob("*") if f.is_file()] if out.is_dir() else [out]
    data = b"".join(f.read_bytes() for f in files)
    assert files and not [gone for gone in (KEY, WORD, "somebody", "HF_TOKEN") if gone.encode() in data]

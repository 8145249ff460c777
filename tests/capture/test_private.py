"""The environment in nsys's exports: only known variables stay, verify warns of keys, an anonymized export has none."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import polars as pl
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
    """As nsys writes it: by rows, with zero bytes or semicolons between, and where the file is free."""
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
        listed = ";".join(f"{name}={value}" for name, value in (VARIABLES | {"LS_COLORS": "rs=0:di=01;34"}).items())
        about = [row[1] for row in database.execute("PRAGMA table_info(TARGET_INFO_SYSTEM_ENV)")]
        row = dict.fromkeys(about, 0) | {"name": "DeviceEnvironment", "value": listed}
        places = ", ".join("?" * len(row))
        database.execute(f"INSERT INTO TARGET_INFO_SYSTEM_ENV ({', '.join(row)}) VALUES ({places})", [*row.values()])
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("INSERT INTO StringIds VALUES (-7, ?)", (whole * 20,))
        database.commit()
        database.execute("DELETE FROM StringIds WHERE id = -7")
        database.commit()
    assert file.read_bytes().count(KEY.encode()) > 20
    return file


def _texts(file: Path) -> str:
    with closing(sqlite3.connect(file)) as database:
        tables = ("META_DATA_CAPTURE", "StringIds", "TARGET_INFO_SYSTEM_ENV")
        rows = database.execute(" UNION ALL ".join(f"SELECT value FROM {table}" for table in tables)).fetchall()
    return "\n".join(str(value) for (value,) in rows)


def test_only_known_and_named_variables_stay(export):
    assert keep_named(export, ["MY_OWN"]) == len(VARIABLES) - 2 + 1
    data, texts = export.read_bytes(), _texts(export)
    for gone in (KEY, WORD, "somebody", "SSH_AUTH_SOCK", "LS_COLORS", "01;34"):
        assert gone.encode() not in data  # also not in what is free in the file
    assert texts.count("NCCL_ALGO") == texts.count("MY_OWN") == 3 and "python" in texts
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


def test_verify_looks_into_an_export_as_parquet(export):
    folder = export.with_name("job_pqtdir")
    folder.mkdir()
    assert secrets_in(folder) == []
    with closing(sqlite3.connect(export)) as database:
        for table in ("StringIds", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
            rows = database.execute(f"SELECT * FROM {table}")
            columns = [about[0] for about in rows.description]
            pl.DataFrame(rows.fetchall(), schema=columns, orient="row").write_parquet(folder / f"{table}.parquet")
            assert secrets_in(folder) == ["DATABASE", "HF_TOKEN", "MY_PASSWORD"]
            (folder / f"{table}.parquet").unlink()


def _pair(name: str, value: str) -> bytes:
    """Two strings of protobuf; a length of more than 127 has two bytes."""
    length = bytes([len(value) % 128 | 128, len(value) // 128]) if len(value) > 127 else bytes([len(value)])
    return b"\n" + bytes([len(name)]) + name.encode() + b"\x12" + length + value.encode()


def test_verify_looks_into_a_report(tmp_path):
    """As nsys 2023.4 writes it: variables between zero bytes, or a pair of strings each."""
    report = tmp_path / "job.nsys-rep"
    harmless = b"\0".join(b"%s=%s" % (name, b"1" * 300) for name in (b"NCCL_ALGO", b"HOME", b"LAST"))
    for held in (f"x=1\0HF_TOKEN={KEY}\0PATH=/bin\0".encode(), _pair("HF_TOKEN", KEY), _pair("HF_TOKEN", KEY * 9)):
        report.write_bytes(b"\x08\x01" + harmless + b"\0" + held + b"\x1a\0\xff" + harmless)
        assert secrets_in(report) == ["HF_TOKEN"]
    report.write_bytes(b"\x08\x01" + harmless + b"\0" + _pair("TOKENIZERS_PARALLELISM", "false") + harmless)
    assert secrets_in(report) == []
    report.write_bytes(b"")
    assert secrets_in(report) == []


@pytest.mark.skipif(shutil.which("nsys") is None, reason="needs nsys")
def test_what_nsys_writes_of_a_program(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", KEY)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    report = tmp_path / "job.nsys-rep"
    words = ["nsys", "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(report), "sleep", "0.1"]
    subprocess.run(words, check=True, capture_output=True)
    for kind, name in (("sqlite", "job.sqlite"), ("parquetdir", "job_pqtdir")):
        words = ["nsys", "export", f"--type={kind}", "-o", str(tmp_path / name), str(report)]
        subprocess.run(words, check=True, capture_output=True)
        assert "HF_TOKEN" in secrets_in(tmp_path / name)
    assert "HF_TOKEN" in secrets_in(report)
    keep_named(tmp_path / "job.sqlite")
    assert secrets_in(tmp_path / "job.sqlite") == [] and KEY.encode() not in (tmp_path / "job.sqlite").read_bytes()


def _plain(file: Path) -> bytes:
    """What a file holds, unpacked."""
    if file.suffix == ".parquet":
        return pl.read_parquet(file).write_json().encode()
    data = file.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


@pytest.mark.parametrize("name", ["job.pftrace", "job.json", "job.parquet"])
def test_an_anonymized_export_has_none_of_it(export, tmp_path, name):
    assert run(["export", str(export), "--anonymize", "--no-cache", "-o", str(tmp_path / name)]) == 0
    out = tmp_path / name
    files = [f for f in out.rglob("*") if f.is_file()] if out.is_dir() else [out]
    data = b"".join(_plain(f) for f in files)
    assert files and not [gone for gone in (KEY, WORD, "somebody", "HF_TOKEN") if gone.encode() in data]

"""What the skills say beside command lines: notes are those of real traces, refusals read as quoted."""

from __future__ import annotations

import importlib.util
import json
import lzma
import re
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.cli.main import run
from stepscope.files.skill_files import SKILLS

TESTS = Path(__file__).parents[1]
ANALYZE = (SKILLS / "analyze-profile" / "SKILL.md").read_text("utf-8")
CAPTURE = (SKILLS / "capture-profile" / "SKILL.md").read_text("utf-8")


def noted() -> set[str]:
    """Codes of notes that the skill explains."""
    table = re.search(r"^\| note \|.*?(?=^$)", ANALYZE, re.S | re.M)
    assert table is not None
    return {code for line in table[0].splitlines()[2:] for code in re.findall(r"`([^`]+)`", line.split("|")[1])}


def first_commands() -> list[str]:
    block = re.search(r"## 1\..*?```bash\n(.*?)```", ANALYZE, re.S)
    assert block is not None
    return [line.split()[1] for line in block[1].splitlines()]


def codes(path: Path, folder: Path) -> set[str]:
    found = set()
    for command in first_commands():
        assert run([command, str(path), "-o", str(folder / "answer.json")]) == 0
        found |= {note["code"] for note in json.loads((folder / "answer.json").read_text())["note_details"]}
    return found


@pytest.mark.slow
def test_codes_exist():
    spec = importlib.util.spec_from_file_location("note_codes", TESTS.parent / "docs" / "note_codes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["note_codes"] = module
    spec.loader.exec_module(module)
    known = {note.code for note in module.note_codes()}
    assert len(noted()) > 10 and noted() <= known


@pytest.mark.parametrize("name", ["moe4mps/overlapped", "payloads/overlapped", "moe4/overlapped", "train/eager"])
def test_notes_of_the_first_commands_are_explained(name, tmp_path):
    path = tmp_path / "trace.sqlite"
    path.write_bytes(lzma.decompress((TESTS / "data" / "h200" / f"{name}.sqlite.xz").read_bytes()))
    found = codes(path, tmp_path)
    assert found and found <= noted()


def test_a_cut_off_capture_says_what_the_skill_looks_for(shared, tmp_path):
    path = shared / "traces" / "h200" / "moe4mps" / "cut_off.sqlite"
    assert "cut-off" in codes(path, tmp_path) <= noted()
    assert run(["capture", "verify", str(path)]) == 1


def test_what_does_not_fit_is_refused_as_quoted(capsys):
    quoted = re.search(r"`(have 8 GPUs[^`]*)`", CAPTURE)
    assert quoted is not None
    assert run(["capture", "plan", "--model", "qwen3-30b-a3b", "--pp", "2", "--ep", "8", "--gpus", "8"]) == 2
    error = capsys.readouterr().err
    for part in " ".join(quoted[1].split()).split("…"):
        assert part.strip(" ;,") in error, part


def test_world_sizes(tmp_path):
    sentence = re.search(r"World sizes: (.*?\.)", CAPTURE, re.S)
    assert sentence is not None
    sizes = re.findall(r"pp=(\d) ep=(\d) are (\d+)", sentence[1])
    assert len(sizes) == 3
    for pp, ep, world in sizes:
        assert run(["capture", "plan", "--pp", pp, "--ep", ep, "--layers", "8", "-o", str(tmp_path / "plan.json")]) == 0
        rows = json.loads((tmp_path / "plan.json").read_text())["rows"]
        assert next(r["value"] for r in rows if r["what"] == "world") in (f"{world} ranks", world, int(world))


def test_checks_of_verify_are_called_so():
    """The table of troubles names checks; `capture verify` must call them the same."""
    source = "".join(p.read_text("utf-8") for p in (Path(stepscope.__file__).parent / "verify").glob("*.py"))
    for check in re.findall(r"^\| `([^`]+)` failed", CAPTURE, re.M):
        assert f'"{check}"' in source, check


def test_a_job_without_stages_says_what_the_skill_looks_for(tmp_path, capsys):
    job = ["--schedule", "ddp", "--pp", "1", "--ep", "1", "--dp", "2", "--layers", "2", "--micro-batches", "2"]
    assert run(["simulate", *job, "-o", str(tmp_path / "ddp")]) == 0
    profile = str(tmp_path / "ddp" / "node0.sqlite")
    for command in (["overlap", profile, "--chunk"], ["pipeline", profile, "--by", "stage"]):
        capsys.readouterr()
        assert run(command) == 3
        error = capsys.readouterr().err
        assert any(quote in error for quote in re.findall(r'exit status 3, "([^"]+)"', ANALYZE)), error
    assert run(["overlap", profile, "-o", str(tmp_path / "answer.json")]) == 0
    stages = {row["stage"] for row in json.loads((tmp_path / "answer.json").read_text())["rows"]}
    assert stages == {"(no stage)"} and "`(no stage)`" in ANALYZE

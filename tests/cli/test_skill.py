"""`stepscope skill`: skills are listed, shown and copied, and nothing that somebody changed is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.cli.main import run
from stepscope.files.skill_files import SKILLS, files_of, names

COUNT = sum(len(files_of(name)) for name in names())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_says_where_they_are(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert f"\n  {SKILLS}\n" in out and "stepscope skill list" in out
    assert (SKILLS / "analyze-profile" / "SKILL.md").is_file()


def test_list_names_all(capsys):
    assert run(["skill", "list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}\n" in out for name in names()) and str(SKILLS) in out


def test_show_prints_the_file(capsys):
    assert run(["skill", "show", "compare-runs"]) == 0
    assert capsys.readouterr().out == (SKILLS / "compare-runs" / "SKILL.md").read_text("utf-8")
    assert run(["skill", "show", "analyze-profile", "references/answers.md"]) == 0
    assert capsys.readouterr().out.startswith("# Worked answers\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["show", "nonsense"], "there are capture-profile, analyze-profile"),
        (["show", "compare-runs", "../analyze-profile/SKILL.md"], "give one of SKILL.md"),
        (["install", "nonsense"], "there are capture-profile, analyze-profile"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(project, capsys, arguments, hint):
    assert run(["skill", *arguments]) == 2
    error = capsys.readouterr().err
    assert hint in error and error.count("\n") == 1
    assert not list(project.iterdir())


def test_install_copies_all_and_says_so(project, capsys):
    assert run(["skill", "install"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == COUNT and all(line.startswith("wrote ") for line in lines)
    for path in (path for name in names() for path in files_of(name)):
        assert (project / ".claude/skills" / path.relative_to(SKILLS)).read_bytes() == path.read_bytes()
    assert run(["skill", "install"]) == 0
    assert all(line.startswith("unchanged ") for line in capsys.readouterr().out.splitlines())


def test_install_of_one_elsewhere(project, capsys):
    assert run(["skill", "install", "compare-runs", "--to", "agents/skills"]) == 0
    assert [p.name for p in (project / "agents/skills").iterdir()] == ["compare-runs"]
    assert not (project / ".claude").exists()


def test_what_somebody_changed_is_kept_unless_forced(project, capsys):
    run(["skill", "install"])
    edited = project / ".claude/skills/analyze-profile/SKILL.md"
    gone = project / ".claude/skills/compare-runs/SKILL.md"
    own = project / ".claude/skills/analyze-profile/notes.md"
    edited.write_text("mine")
    gone.unlink()
    own.write_text("mine, too")
    capsys.readouterr()
    assert run(["skill", "install"]) == 2
    error = capsys.readouterr().err
    assert ".claude/skills/analyze-profile/SKILL.md" in error and "--force" in error and error.count("\n") == 1
    assert edited.read_text() == "mine" and not gone.exists(), "a refusal writes nothing at all"
    assert run(["skill", "install", "--force"]) == 0
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == ["overwrote", *["unchanged"] * (COUNT - 2), "wrote"]
    assert edited.read_bytes() == (SKILLS / "analyze-profile" / "SKILL.md").read_bytes()
    assert own.read_text() == "mine, too"


def test_a_file_or_folder_in_the_way_is_refused(project, capsys):
    (project / "file").write_text("")
    assert run(["skill", "install", "--to", "file"]) == 2
    assert "is a file" in capsys.readouterr().err
    (project / "to/compare-runs/SKILL.md").mkdir(parents=True)
    assert run(["skill", "install", "--to", "to", "--force"]) == 2
    assert "is not a file" in capsys.readouterr().err

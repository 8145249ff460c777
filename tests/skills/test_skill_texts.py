"""What the skills say is so: their form, and that every command line, option and column in them exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from commandlines import every_option, parse
from stepscope import questions
from stepscope.compare.columns import VARIANTS as COMPARE
from stepscope.files.skill_files import SKILLS, description, files_of, front_matter, names
from stepscope.model.result import columns

TEXTS = [path for name in names() for path in files_of(name)]


def columns_of(command: str) -> set[str]:
    if command == "compare":
        return {column.name for row in COMPARE.values() for column in columns(row)}
    analysis = questions.get(command)
    return {c.name for columns in (analysis.columns, *analysis.variants.values()) for c in columns}


def fenced(text: str) -> Iterator[str]:
    """Command lines in blocks of shell."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.S | re.M):
        yield from (line for line in block.splitlines() if line.strip())


def inline(text: str) -> Iterator[str]:
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    yield from (" ".join(code.split()) for code in re.findall(r"`(stepscope [^`]+)`", prose))


def identify(path: Path) -> str:
    return path.relative_to(SKILLS).as_posix()


@pytest.mark.parametrize("name", names())
def test_the_form_is_that_of_agentskills(name):
    text = (SKILLS / name / "SKILL.md").read_text("utf-8")
    front = front_matter(text)
    assert front["name"] == name
    assert len(name) <= 64 and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert 0 < len(description(name)) <= 1024
    assert "Use when" in description(name), "an agent decides by the description whether it needs the skill"
    assert ": " not in description(name), "YAML would take it for a key"
    assert set(front) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    body = text.split("---\n", 2)[2]
    assert len(body.splitlines()) < 500


def test_there_are_the_five():
    assert set(names()) == {"capture-profile", "analyze-profile", "compare-runs", "find-hang", "read-kernel-and-memory"}


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_references_are_one_level_deep_and_lead_somewhere(path):
    inside = path.relative_to(SKILLS).parts[1:]
    assert len(inside) <= 2
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8"))
    for link in links:
        assert (path.parent / link).is_file(), link
        assert (path.parent / link).is_relative_to(SKILLS / path.relative_to(SKILLS).parts[0])
    if inside[0] != "SKILL.md":
        assert not links, "a reference sends nobody further"
        main = (SKILLS / path.relative_to(SKILLS).parts[0] / "SKILL.md").read_text("utf-8")
        assert f"]({'/'.join(inside)})" in main, "no SKILL.md would lead to it"


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_skills_that_are_named_exist(path):
    for name in re.findall(r"(?:use|see|\() ?`?([a-z]+(?:-[a-z]+)+)`?", path.read_text("utf-8")):
        if name.endswith(("-profile", "-runs", "-memory")):
            assert name in names(), name


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_command_lines_are_understood(path):
    text = path.read_text("utf-8")
    for line in fenced(text):
        if not line.startswith("nsys "):  # by hand, without us
            parse(line)
    for line in inline(text):
        with suppress(click.MissingParameter):  # in prose a command may be named without all that it needs
            parse(line)


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_options_in_prose_exist(path):
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.S | re.M)
    known = every_option()
    for code in re.findall(r"`([^`]*)`", prose):
        if not code.startswith(("nsys", "ncu", "torch")):
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)) <= known, code


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_columns_of_tables_are_those_of_their_command(path):
    lines = path.read_text("utf-8").splitlines()
    where: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            where = []
        elif "command" in cells and "columns" in cells:
            where = cells
        elif where and not set(line) <= set("|-"):
            row = dict(zip(where, cells, strict=True))
            command = parse(row["command"].strip("`")).info_name
            assert command is not None
            named = re.findall(r"`([^`]+)`", row["columns"])
            assert named and set(named) <= columns_of(command), (command, set(named) - columns_of(command))


@pytest.mark.parametrize("path", TEXTS, ids=identify)
def test_everything_that_looks_like_a_column_is_one(path):
    text = path.read_text("utf-8")
    known = {c for name in questions.names() for c in columns_of(name)} | columns_of("compare")
    quoted = re.findall(r"`([a-zA-Z_0-9]+_(?:ns|pct|bytes|gbps|us|flops))`", text)
    assert set(quoted) <= known, set(quoted) - known


def test_parsing_refuses_what_the_command_line_refuses():
    for wrong in ("stepscope overlap PROFILE --nonsense", "stepscope overlap", "stepscope overlapp PROFILE"):
        with pytest.raises(click.UsageError):
            parse(wrong)
    with pytest.raises(click.BadParameter):
        parse("stepscope overlap PROFILE --by nonsense")

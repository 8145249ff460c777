"""The recipes of docs/architecture.md, followed literally: on a copy of the package, with the tests printed there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import stepscope
from stepscope import questions
from stepscope.cli.group import own_commands
from stepscope.findings.registry import DETECTORS
from test_layering import LAYERS, ROOMS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

#: Recipe -> the files to write, in the order of their blocks; and the lines to add, by file: (before what, line).
RECIPES: dict[str, tuple[tuple[str, str], dict[str, list[tuple[str, str]]]]] = {
    "analysis": (
        ("src/stepscope/analyses/busiest.py", "tests/analyses/test_busiest.py"),
        {"questions.py": [('        "analyses.breakdown",\n', '        "analyses.busiest",\n')]},
    ),
    "command": (
        ("src/stepscope/cli/commands/hosts.py", "tests/cli/test_hosts.py"),
        {"cli/group.py": [('"simulate", "demo"),\n', '"hosts", ')]},
    ),
    "detector": (
        ("src/stepscope/findings/detectors/memsets.py", "tests/findings/test_memsets.py"),
        {"findings/registry.py": [('    "module-loading",\n', '    "memsets",\n')]},
    ),
    "source": (
        ("src/stepscope/sources/oplog/__init__.py", "tests/sources/oplog/test_oplog.py"),
        {
            "sources/detect.py": [
                ('    "step-log",\n]', '    "op-log",\n'),
                (
                    "    if head.startswith(_NSYS_REPORT):\n",
                    '    if head.startswith(b"# ops"):\n        return "op-log"\n',
                ),
            ],
            "model/texts/reading.py": [
                ('    "units-missing": (\n', '    "times-backwards": "{number} ops end before they start: left out",\n')
            ],
            "sources/open.py": [
                (
                    '        if kind == "pipeline-log":\n            from',
                    '        if kind == "op-log":\n            from stepscope.sources.oplog import OpLog\n\n'
                    "            return OpLog(path)\n",
                )
            ],
        },
    ),
}


def blocks(title: str) -> list[str]:
    """The Python of one recipe."""
    section = re.search(rf"^## To add an? {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section is not None
    return [textwrap.dedent(b) for b in re.findall(r"^ *```python\n(.*?)^ *```", section[1], re.DOTALL | re.MULTILINE)]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_works(recipe: str, tmp_path: Path) -> None:
    package = tmp_path / "src" / "stepscope"
    shutil.copytree(Path(stepscope.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    written, added = RECIPES[recipe]
    for name, code in zip(written, blocks(recipe), strict=True):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code, "utf-8")
        assert f"`{name}`" in PAGE, f"the page does not say to write {name}"
    for file, lines in added.items():
        text = (package / file).read_text("utf-8")
        for mark, line in lines:
            assert text.count(mark) == 1, f"{file}: {mark!r}"
            text = text.replace(mark, line + mark)
        (package / file).write_text(text, "utf-8")
    shutil.copy(ROOT / "tests" / "fake.py", tmp_path / "tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t"), written[1]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(tmp_path / "tests")])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_passes_the_linter(recipe: str) -> None:
    """`make test` begins with it: who follows the page does not mend its examples."""
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed here")
    for name, code in zip(RECIPES[recipe][0], blocks(recipe), strict=True):
        for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
            done = subprocess.run(
                [ruff, *command, "--stdin-filename", ROOT / name, "-"], input=code, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


def test_the_page_draws_the_layers() -> None:
    for layer in LAYERS:
        for package in layer - {"web", "agent", "__init__", "__main__"}:  # those come later, or are no package
            assert re.search(rf"^\| `{package}` \|", PAGE, re.MULTILINE), f"{package} has no row"
    for rooms in ROOMS["derive"]:
        for room in rooms:
            assert re.search(rf"^\| `{room}` \|", PAGE, re.MULTILINE), f"derive/{room} has no row"


def test_every_detector_is_described() -> None:
    described = re.findall(r"^### ([\w-]+)$", (ROOT / "docs" / "diagnoses.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(described) == sorted(DETECTORS)


def test_the_recipe_s_names_are_free() -> None:
    taken = {*questions.names(), *own_commands(), *DETECTORS}
    assert not {"busiest", "hosts", "memsets"} & taken, "the page's example has become real"

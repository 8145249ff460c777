"""The example for GitHub Actions, run as it is: every step but those that need GitHub, an index or a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pairs import scenario
from stepscope.cli.main import run
from stepscope.simulate.run import simulate_to

EXAMPLE = Path(__file__).parents[2] / "examples" / "github-actions" / "step-time.yml"


def steps() -> dict[str, str]:
    """By name: what a step runs."""
    found: dict[str, str] = {}
    name = ""
    lines = EXAMPLE.read_text("utf-8").split("\n")
    for at, line in enumerate(lines):
        if line.startswith("      - name: "):
            name = line.removeprefix("      - name: ")
        if line == "        run: |":
            end = next((k for k in range(at + 1, len(lines)) if lines[k] and not lines[k].startswith(" " * 10)), None)
            found[name] = textwrap.dedent("\n".join(lines[at + 1 : end]))
    return found


@pytest.fixture
def shell(tmp_path: Path):
    """A shell as the runner has it: the steps' variables, and a file for the summary."""
    program = tmp_path / "bin" / "stepscope"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stepscope "$@"\n', "utf-8")
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "BASELINE": ".stepscope/baselines/main.json",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }

    def ran(text: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    return ran


def test_the_baseline_is_among_what_is_kept():
    """upload-artifact leaves out hidden files and folders unless told otherwise (since v4.4)."""
    keep = EXAMPLE.read_text("utf-8").partition("- name: keep")[2]
    assert ".stepscope/baselines" in keep and "include-hidden-files: true" in keep


def test_what_the_example_captures_is_what_capture_takes(capsys):
    words = next(line for line in steps()["capture"].split("\n") if line.startswith("stepscope")).split()
    for option in (word for word in words[:-2] if word.startswith("--") and word != "--"):
        assert run(["capture", "run", "--help"]) == 0
        assert option in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_saves_a_baseline_passes_and_fails(shell, tmp_path: Path) -> None:
    gate = steps()["gate"]
    simulate_to(scenario(seed=1), tmp_path / "cap")
    first = shell(gate)
    assert (first.returncode, "there was no baseline" in first.stdout) == (0, True), first.stderr
    (tmp_path / "cap").rename(tmp_path / "before")
    simulate_to(scenario(seed=2), tmp_path / "cap")
    passed = shell(gate)
    assert passed.returncode == 0, passed.stderr
    assert "::error" not in passed.stdout and "stepscope gate: passed" in (tmp_path / "summary.md").read_text("utf-8")
    (tmp_path / "cap").rename(tmp_path / "same")
    simulate_to(scenario(seed=3, faults=("straggler:rank=0,factor=1.06",)), tmp_path / "cap")
    failed = shell(gate)
    assert failed.returncode == 1 and "the gate failed: step" in failed.stderr
    (said,) = [line for line in failed.stdout.split("\n") if line.startswith("::error")]
    assert said.startswith("::error title=stepscope gate%3A step failed::+") and "limit 2 %25" in said
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "stepscope gate: failed" in summary and "❌ failed: step: +" in summary
    assert "check" in failed.stdout and "why" in failed.stdout

"""Messages that were poor once, each with what it says now: a stranger reads them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.cli.main import run
from stepscope.errors import BadInput, extra
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert run([str(word) for word in words]) == 2
    return capsys.readouterr().err


def test_a_group_without_a_command_shows_its_help(capsys) -> None:
    lines = said(capsys, "capture").splitlines()
    assert lines[0].startswith("Usage: stepscope capture") and len(lines) > 10
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:1] == ["plan"] for line in lines)


@pytest.mark.parametrize(
    "query", ["SELECT 1", "PIVOT ops ON kind", "(unpivot ops ON nr)", "VALUES (1)", "Select nr from ops"]
)
def test_a_query_before_its_profile_is_told_the_order(capsys, tmp_path: Path, query: str) -> None:
    file, other = tmp_path / "job.sqlite", tmp_path / "other.sqlite"
    file.touch()
    other.touch()
    assert said(capsys, "sql", query, file) == f"stepscope: the query comes last; stepscope sql {file} '{query}'\n"
    told = f"stepscope: the query comes last; stepscope sql {other} {file} '{query}'\n"
    assert said(capsys, "sql", query, other, file) == said(capsys, "sql", other, query, file) == told


def test_an_nsys_that_is_not_there_is_refused_whatever_is_cached(capsys, tmp_path: Path) -> None:
    file = tmp_path / "job.sqlite"
    file.touch()
    assert said(capsys, "window", file, "--nsys", "/nonexistent/nsys") == (
        "stepscope: --nsys /nonexistent/nsys: no such program; give the path of nsys, or leave --nsys out\n"
    )


def test_a_folder_that_cannot_be_made_is_no_bug(capsys) -> None:
    text = said(capsys, "skill", "install", "--to", "/proc/x")
    assert text.startswith("stepscope: --to /proc/x: ") and "name a folder that can be written" in text
    assert "bug" not in text


def test_an_unknown_model_is_told_which_there_are_and_how_to_write_one(capsys) -> None:
    text = said(capsys, "capture", "plan", "--model", "a-model-of-my-own")
    for word in ("llama-3.1-8b", "qwen3-32b", "mixtral-8x7b", "deepseek-v3", "layers=32,width=4096", "TOML"):
        assert word in text


def test_all_folders_that_hold_traces_are_named(capsys, tmp_path: Path) -> None:
    for k in range(7):
        (tmp_path / f"run{k}").mkdir()
        (tmp_path / f"run{k}" / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": []}', "utf-8")
    text = said(capsys, "diagnose", tmp_path)
    assert "one level down" in text and all(f"run{k}" in text for k in range(7))


def test_a_recipe_without_a_profile_or_a_name_is_told_what_is_missing(capsys, tmp_path: Path) -> None:
    assert f"the recipe comes first; recipe NAME {tmp_path}" in said(capsys, "recipe", tmp_path)
    assert "name it: recipe cuda_gpu_kern_sum PROFILE" in said(capsys, "recipe", "cuda_gpu_kern_sum")


def test_a_url_keeps_its_slashes() -> None:
    with pytest.raises(BadInput, match="s3://bucket/run: a URL; only files are read"):
        stepscope.open(Path("s3://bucket/run"))
    with pytest.raises(BadInput, match=r"file:///my%20run/a\.json: a URL; .*give its path: /my run/a"):
        stepscope.open("file:///my%20run/a.json")


def test_a_profile_before_its_command_is_told_the_order(capsys, tmp_path: Path) -> None:
    text = said(capsys, tmp_path, "breakdown", "--index", "all")
    assert f"the command comes first; stepscope breakdown {tmp_path} --index all" in text


def test_a_link_to_itself_is_no_missing_file(capsys, tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").symlink_to("a.sqlite")
    assert "a link that leads back to itself" in said(capsys, "info", tmp_path / "a.sqlite")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["diagnose", "JOB", "--least", "nan"], "'nan' is not a valid float"),
        (["diagnose", "JOB", "--least", "inf"], "'inf' is not a valid float"),
        (["diagnose", "JOB", "--fail-on", "nan%"], "--fail-on nan%: not a share"),
        (["serve", "JOB", "--idle", "nan"], "'nan' is not a valid float"),
        (["info", "   "], "' ': no such file"),  # messages are one line, in single spaces
    ],
)
def test_what_no_figure_is_above_is_no_bound(capsys, tmp_path: Path, words: list[str], text: str) -> None:
    """A share that is not a number let every gate pass."""
    simulate_to(Scenario(schedule="ddp", pp=1, dp=1, ep=1, layers=1, micro_batches=1, steps=1), tmp_path, ("kineto",))
    assert text in said(capsys, *[tmp_path if word == "JOB" else word for word in words])


def test_options_in_python_are_of_their_type(tmp_path: Path) -> None:
    simulate_to(Scenario(schedule="ddp", pp=1, dp=1, ep=1, layers=1, micro_batches=1, steps=1), tmp_path, ("kineto",))
    profile = stepscope.open(tmp_path)
    for name, value in (("top", "x"), ("limit", 1.5), ("offset", "0")):
        with pytest.raises(BadInput, match=f"--{name} {value!r} is not a whole number"):
            profile.kernels(**{name: value})
    for value in ("x", float("nan")):
        with pytest.raises(BadInput, match=f"--least {value!r} is not a number"):
            profile.diagnose(least=value)
    assert profile.kernels(top=np.int64(1)).rows.height == 1
    for options, text in (
        ({"rank": 0.5}, "--rank 0.5 names no ranks"),
        ({"rank": []}, "--rank: no rank is given"),
        ({"rank": ["x"]}, r"--rank \['x'\] names no ranks"),
        ({"whole": "yes"}, "--whole 'yes' is neither True nor False"),
        ({"sort": ["n"]}, r"--sort \['n'\] is not a text"),
    ):
        with pytest.raises(BadInput, match=text):
            profile.kernels(**options)
    assert profile.kernels(rank=np.int64(0)).rows.equals(profile.kernels(rank=[0]).rows)
    with pytest.raises(TypeError, match="sql: 5 is not a text"):
        profile.sql(5)
    with pytest.raises(BadInput, match="--fail-on 5 is not a text"):
        profile.diagnose(fail_on=5)
    only = profile.diagnose(only="exposed-copies")  # one of several, alone
    assert only.rows.equals(profile.diagnose(only=["exposed-copies"]).rows)
    with pytest.raises(TypeError, match="open: None is not a path"):
        stepscope.open(None)


def test_a_window_that_is_none_is_shown_as_it_was_given(capsys, tmp_path: Path) -> None:
    simulate_to(Scenario(schedule="ddp", pp=1, dp=1, ep=1, layers=1, micro_batches=1, steps=1), tmp_path, ("kineto",))
    text = said(capsys, "breakdown", tmp_path, "--start", "2ms", "--end", "1ms")
    assert "--start 2.000ms is not before --end 1.000ms" in text
    assert "--anchor '' is empty" in said(capsys, "breakdown", tmp_path, "--anchor", "")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'stepscope[web]'"),
        ({"url": "file:///home/me/a%20clone", "dir_info": {}}, "pip install '/home/me/a clone[web]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "pip install -e '/src[web]'"),
        ({"url": "file:///d/s.whl", "archive_info": {}}, "pip install 'stepscope[web] @ file:///d/s.whl'"),
    ],
)
def test_an_extra_is_installed_from_where_stepscope_came(monkeypatch, origin, command) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return json.dumps(origin) if origin else None

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert extra("web") == command


def test_a_terminal_gets_errors_in_whole_words(tmp_path: Path) -> None:
    """One line in a pipe; on 80 columns no word is cut in two, and nothing else is changed."""
    command = [sys.executable, "-m", "stepscope", "capture", "plan", "--model", "mine"]
    piped = subprocess.run(command, capture_output=True, text=True).stderr
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment):
        os.close(terminal)
        written = b""
        with contextlib.suppress(OSError):  # what a closed terminal answers
            while piece := os.read(controller, 4096):
                written += piece
    os.close(controller)
    lines = written.decode().splitlines()
    assert piped.count("\n") == 1 and len(lines) > 1
    assert " ".join(written.decode().split()) == piped.strip()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)

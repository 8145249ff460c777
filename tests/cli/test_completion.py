"""What shells complete: asked as they ask it, and in the shells themselves where they are installed."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stepscope.cli.complete import COMPLETE
from stepscope.cli.main import run

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def ask(monkeypatch, capfd):
    """(kind, value) of all that is offered for the last word of a command line."""

    def asked(*words: str) -> list[tuple[str, str]]:
        monkeypatch.setenv(COMPLETE, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("stepscope", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert run([]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        return [(kind, value) for kind, _, value in (line.partition(",") for line in out.splitlines())]

    return asked


@pytest.mark.parametrize(
    "words",
    [
        ("overlap", "tra"),
        ("overlap", "a.sqlite", "tra"),
        ("report", "x", "-o", "tra"),
        ("report", "--memory", "tra"),
        ("compare", "a", "--to", "tra"),
        ("compare", "a", "--to", "b", "tra"),
        ("gate", "tra"),
        ("stats", "tra"),
        ("recipe", "nccl_sum", "tra"),
        ("sql", "tra"),
        ("capture", "verify", "tra"),
        ("capture", "ncu", "--from", "tra"),
        ("pipeline", "x", "--against", "tra"),
        ("info", "x", "--taxonomy", "tra"),
        ("gate", "x", "--baseline", "tra"),
        ("mfu", "x", "--model", "tra"),
    ],
)
def test_files_are_left_to_the_shell(ask, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask(*words) == [("file", "tra")]


def test_folders(ask):
    assert ask("simulate", "-o", "tra") == ask("capture", "run", "-o", "tra") == [("dir", "tra")]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("stats", "-r", "cuda_gpu_kern"), {"cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"}),
        (("stats", "-r", "osrt_sum,nvtx_g"), {"osrt_sum,nvtx_gpu_proj_sum", "osrt_sum,nvtx_gpu_proj_trace"}),
        (("rules", "-r", "cuda_mems"), {"cuda_memset_sync"}),
        (("recipe", "nccl_s"), {"nccl_sum"}),
        (("diagnose", "x", "--only", "late"), {"late-node"}),
        (("diagnose", "x", "--fail-on", "strag"), {"straggler"}),
        (("simulate", "--fault", "slow"), {"slow-host:", "slow-link:", "slow-python:"}),
        (("simulate", "--schedule", "zero"), {"zero-bubble"}),
        (("mfu", "x", "--model", "deep"), {"deepseek-v2-lite", "deepseek-v3"}),
        (("capture", "plan", "--model", "qwen3-30"), {"qwen3-30b-a3b"}),
        (("capture", "run", "--with", "stacks,sha"), {"stacks,shapes"}),
        (("gate", "x", "--limit", "st"), {"step=", "stage:"}),
        (("overlap", "x", "--by", "str"), {"stream"}),
        (("overlap", "x", "--chu"), {"--chunk"}),
        (("skill", "show", "analyze"), {"analyze-profile"}),
        (("str",), {"streams", "stragglers"}),
    ],
)
def test_names_are_those_of_their_owners(ask, words, offered):
    assert set(ask(*words)) == {("plain", name) for name in offered}


def test_baselines_are_those_below_this_directory(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".stepscope" / "baselines"
    folder.mkdir(parents=True)
    for name in ("main", "main-8gpu", "other"):
        (folder / f"{name}.json").touch()
    assert ask("gate", "x", "--baseline", "ma") == [("plain", "main"), ("plain", "main-8gpu")]


#: How each shell is started bare, and what a user puts into its start-up file.
SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], f'eval "$({COMPLETE}=bash_source stepscope)"'),
    "zsh": (["-f", "-i"], f'autoload -U compinit; compinit -D; eval "$({COMPLETE}=zsh_source stepscope)"'),
    "fish": (["--no-config", "-i"], f"env {COMPLETE}=fish_source stepscope | source"),
}
PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with profiles to name, and a `stepscope` that answers shells and else keeps how it was called."""
    program = tmp_path / "bin" / "stepscope"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ -n "${COMPLETE}" ] && PYTHONPATH={SOURCES} exec {sys.executable} -m stepscope "$@"\n'
        f'printf "%s|" "$@" >> {tmp_path}/called; echo >> {tmp_path}/called\n'
    )
    program.chmod(0o755)
    (tmp_path / "my traces").mkdir()
    (tmp_path / "my traces" / "node0.sqlite").touch()
    (tmp_path / "run.sqlite").touch()
    return tmp_path


def typed(home: Path, shell: str, keys: list[str]) -> list[list[str]]:
    """How `stepscope` was called after each line was typed into the shell, on a terminal."""
    options, setup = SHELLS[shell]
    environment = {**os.environ, "PATH": f"{home}/bin:{os.environ['PATH']}", "TERM": "xterm"}
    environment |= dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), str(home))
    master, slave = pty.openpty()
    called = home / "called"
    with subprocess.Popen(
        ["setsid", "--ctty", shell, *options], stdin=slave, stdout=slave, stderr=slave, cwd=home, env=environment
    ) as process:
        os.close(slave)
        reader = threading.Thread(target=drained, args=(master,), daemon=True)
        reader.start()
        try:
            for count, line in enumerate((setup + "; stepscope ready", *keys), 1):
                os.write(master, f"{line}\r".encode())
                until = time.monotonic() + PATIENCE_S
                while (called.read_text() if called.exists() else "").count("\n") < count:
                    assert time.monotonic() < until, f"{shell}: nothing came of {line!r}"
                    time.sleep(0.05)
        finally:
            process.kill()
    os.close(master)
    return [line.split("|")[:-1] for line in called.read_text().splitlines()[1:]]


def drained(terminal: int) -> None:
    """A shell whose terminal nobody reads would stop."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


@pytest.mark.parametrize("shell", SHELLS)
def test_in_the_shell_itself(home, shell):
    if not shutil.which(shell) or not shutil.which("setsid"):
        pytest.skip(f"no {shell} here")
    lines = ["stepscope recipe nccl_s\tru\t", "stepscope info my\tno\t"]
    assert typed(home, shell, lines) == [["recipe", "nccl_sum", "run.sqlite"], ["info", "my traces/node0.sqlite"]]

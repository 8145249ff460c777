"""Standard streams that are closed, full or narrow, and paths that no user owns: one line, and never a bug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import run

STEPSCOPE = f"{sys.executable} -m stepscope"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    assert run(["simulate", "--pp", "2", "--ep", "1", "--layers", "4", "--steps", "1", "-o", str(folder / "job")]) == 0
    return folder / "job"


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=folder, env={**os.environ, **env}, check=False
    )


@pytest.mark.parametrize(
    ("redirect", "said"),
    [
        (">&-", "standard output is closed; give -o FILE"),
        ("> /dev/full", "standard output cannot be written (No space left on device); give -o FILE on another disk"),
    ],
)
def test_nowhere_to_write(trace: Path, tmp_path: Path, redirect: str, said: str) -> None:
    done = shell(f"{STEPSCOPE} info {trace} {redirect}", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"stepscope: {said}\n")


def test_an_answer_in_a_file_needs_no_standard_output(trace: Path, tmp_path: Path) -> None:
    assert shell(f"{STEPSCOPE} info {trace} -o answer.json >&-", tmp_path).returncode == 0
    assert (tmp_path / "answer.json").read_bytes().startswith(b"{")


def test_errors_never_reach_standard_output(tmp_path: Path) -> None:
    done = shell(f"{STEPSCOPE} info nope 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_an_encoding_without_the_character(trace: Path, tmp_path: Path) -> None:
    done = shell(f"{STEPSCOPE} stats {trace} -r nvtx_sum", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "Time (%)" in done.stdout, done.stderr


@pytest.mark.slow
def test_nobody_of_that_name(trace: Path, tmp_path: Path) -> None:
    missing = shell(f"{STEPSCOPE} info '~nobody-here'", tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "stepscope: ~nobody-here: no such file; check the path\n")
    assert shell(f"{STEPSCOPE} info {trace}", tmp_path, STEPSCOPE_CACHE_DIR="~nobody-here/x").returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        "breakdown TRACE --start 0 --end 99999999999999999999999",
        "breakdown TRACE --start -5 --end 10",
        "capture run --port -1 --nproc 2 -- true",
    ],
)
def test_numbers_out_of_range(trace: Path, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options.replace("TRACE", str(trace)).split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "bug" not in said


def test_a_panic_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class PanicException(BaseException):
        pass

    def fails(message: str) -> str:
        def panic(*_: object, **__: object) -> None:
            raise PanicException(message)

        monkeypatch.setattr("stepscope.cli.main.cli.make_context", panic)
        assert run(["info", "x"]) == 2
        return capsys.readouterr().err

    assert "this is a bug" in fails("max length exceeded") and "\n" not in fails("max length exceeded")[:-1]
    assert "not enough memory" in fails("memory allocation of 1073741824 bytes failed")


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="no /proc")
def test_what_the_system_makes_up_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", "/proc"]) == 2
    assert "/proc: no profile in this directory" in capsys.readouterr().err

"""Exit codes, and one line on stderr whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake import three_steps
from stepscope import questions
from stepscope.api import opening
from stepscope.errors import BadInput, GateFailed


def one_line(text: str) -> bool:
    return text.startswith("stepscope: ") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense', and no such file."),
        (["strems", "x"], "Did you mean streams?"),
        (["info"], "Missing argument"),
        (["info", "x", "--colour"], "No such option"),
        (["info", "x", "--format", "xml"], "not one of"),
        (["window", "x", "--start", "soon"], "not a time"),
        (["window", "x", "--start", "5"], "--start and --end go together"),
        (["window", "x", "--index", "first"], "give a number, median or all"),
        (["window", "x", "--index", "7"], "has 3 instances"),
        (["window", "x", "--anchor", "("], "valid regular expression"),
        (["window", "x", "--rank", "0,x"], "is not a rank"),
        (["window", "x", "--rank", "3-1"], "runs backwards"),
        (["window", "x", "--rank", "9"], "no rank 9"),
        (["info", "x", "-o", "no/such/folder/a.json"], "make it first"),
        (["info", "x", "--taxonomy", "no-such.toml"], "the taxonomy no-such.toml: cannot read it"),
    ],
)
def test_bad_usage_is_one_line_and_two(stepscope, arguments, says):
    ran = stepscope(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert one_line(ran.err), ran.err
    assert says in ran.err


def test_what_the_profile_lacks_is_three(stepscope):
    ran = stepscope("window", "x", "--anchor", "no such range")
    assert (ran.status, ran.out) == (3, "")
    assert one_line(ran.err)


def test_no_gpu_activity_is_three(stepscope, sources):
    sources[:] = [three_steps(tables=("calls", "ranges"))]
    ran = stepscope("streams", "x")
    assert ran.status == 3
    assert "--trace=cuda" in ran.err


def failing(error: BaseException):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (
            BadInput("a.sqlite: not a database", "give an export"),
            2,
            "stepscope: a.sqlite: not a database; give an export",
        ),
        (BadInput("two\nlines"), 2, "stepscope: two lines"),
        (GateFailed("slower by 4 %"), 1, "slower by 4 %"),
        (ZeroDivisionError("division by zero"), 2, "unexpected ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_one_line(stepscope, monkeypatch, error, status, says):
    monkeypatch.delenv("STEPSCOPE_DEBUG", raising=False)
    monkeypatch.setattr(opening, "find_profiles", failing(error))
    ran = stepscope("info", "x")
    assert (ran.status, ran.out) == (status, "")
    assert one_line(ran.err)
    assert says in ran.err


def test_traceback_only_on_request(stepscope, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_DEBUG", "1")
    monkeypatch.setattr(opening, "find_profiles", failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        stepscope("info", "x")


def test_an_input_is_never_overwritten(stepscope, sources, tmp_path: Path):
    trace = tmp_path / "trace.json"
    trace.write_text("precious")
    sources[:] = [three_steps(trace)]
    for given in (trace, tmp_path):  # named, and found in a directory
        ran = stepscope("info", given, "-o", trace)
        assert (ran.status, trace.read_text()) == (2, "precious")
        assert "one of the inputs" in ran.err
    assert stepscope("info", tmp_path, "-o", tmp_path / "answer.json").status == 0
    assert stepscope("info", tmp_path, "-o", tmp_path / "answer.json").status == 0


def test_a_part_of_a_parquet_export_is_never_overwritten(stepscope, sources, tmp_path: Path):
    part = tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    part.write_text("precious")
    sources[:] = [three_steps(tmp_path)]
    assert stepscope("info", tmp_path, "-o", part).status == 2
    assert part.read_text() == "precious"


def test_parquet_is_kept_off_terminals(stepscope, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    ran = stepscope("info", "x", "--format", "parquet")
    assert (ran.status, ran.out) == (2, "")


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "stepscope"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_arguments_show_the_help(stepscope):
    ran = stepscope()
    assert ran.status == 0
    for name in questions.names():
        assert f"\n  {name} " in ran.out


def test_version(stepscope):
    assert stepscope("--version").out.startswith("stepscope 0.")


def test_shell_completion_is_there():
    done = subprocess.run(
        [sys.executable, "-m", "stepscope"],
        env={**os.environ, "_STEPSCOPE_COMPLETE": "bash_source"},
        capture_output=True,
        text=True,
    )
    assert "complete" in done.stdout

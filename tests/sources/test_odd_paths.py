"""Paths that people give by accident: each is refused in one line that says what to give instead."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import pytest

from stepscope.errors import BadInput
from stepscope.sources.kineto import open_kineto
from stepscope.sources.open import find_profiles

TRACE = '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}'


def refused(*paths: str | Path) -> str:
    with pytest.raises(BadInput) as caught:
        find_profiles(paths)
    return str(caught.value)


def test_an_unset_variable_is_not_this_directory() -> None:
    assert "empty path" in refused("")


def test_traces_one_level_down_are_named(tmp_path: Path) -> None:
    for name in ("run1", "run2", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "run1" / "a.pt.trace.json").write_text(TRACE)
    (tmp_path / "run2" / "a.pt.trace.json").write_text(TRACE)
    (tmp_path / "logs" / "out.txt").write_text("hello")
    said = refused(tmp_path)
    assert said.endswith(f"one level down: give {tmp_path / 'run1'}, {tmp_path / 'run2'}")


def test_a_parquet_export_without_its_strings(tmp_path: Path) -> None:
    pl.DataFrame({"start": [1]}).write_parquet(tmp_path / "NVTX_EVENTS.parquet")
    assert "without StringIds.parquet" in refused(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse the name")
def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.json"))
    path.write_text(TRACE)
    assert "bad\\xff.json: the name is not UTF-8" in refused(path)
    assert "the name is not UTF-8" in refused(tmp_path)


def test_a_directory_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    closed = tmp_path / "closed"
    closed.mkdir()
    real = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda self: forbidden(self) if self.parent == closed else real(self))
    monkeypatch.setattr(Path, "iterdir", forbidden)
    assert "cannot be listed (Permission denied)" in refused(closed)


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", "[1, 2]", '{"traceEvents": [{"ph": "X"}]}'])
def test_a_torch_trace_of_nothing_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rank3.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"rank3\.json: a trace without an event"):
        open_kineto(path).processes()

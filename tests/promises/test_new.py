"""The programs of `programs`, their captures and what they cost: that all belong together."""

from __future__ import annotations

import ast
import lzma
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from promises import new
from promises.pair import Said
from stepscope import api

PROGRAMS = Path(new.__file__).parent / "programs"
ALL = (*new.table(), *new.table("captured"))
OF_THE_RUN = [row for row in new.table() if row["row"].startswith("C")]


def constant(file: str, name: str) -> Any:
    """Of a program that cannot be imported here: it needs torch."""
    for node in ast.parse((PROGRAMS / file).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(name)


def test_rows_are_faults_of_programs() -> None:
    for row in ALL:
        faults = constant(f"{row['program']}.py", "FAULTS")
        assert faults[row["fault"]] == row["row"]
        assert faults.get(row["twin"], "twin") == "twin"


def test_each_fault_of_the_table_costs_something() -> None:
    for row in new.table():
        for tool in row["tools"]:
            with_ms, without_ms = new.timed(row, tool)
            assert statistics.fmean(with_ms) > statistics.fmean(without_ms), (row["program"], row["fault"], tool)


def test_captures_and_rows_are_the_same() -> None:
    named = {new.archive(row["program"], row["fault"], tool).name for row in ALL for tool in row["tools"]}
    named |= {new.archive(*twin).name for twin in new.twins()}
    assert {path.name for path in new.DATA.glob("*.tar.xz")} == named


@pytest.mark.slow
def test_they_are_small_and_nothing_is_private() -> None:
    for path in sorted(new.DATA.glob("*.tar.xz")):
        assert path.stat().st_size < 1_200_000, path.name
        raw = lzma.decompress(path.read_bytes())
        for private in (b"/root/", b"/home/", b"/tmp/", b"/opt/", b"/work/", b".vm.", b"TOKEN", b"LS_COLORS"):
            assert private not in raw, (path.name, private)


@pytest.mark.parametrize("tool", new.TOOLS)
@pytest.mark.parametrize("row", OF_THE_RUN, ids=lambda row: f"{row['program']}-{row['fault']}")
def test_steps_are_as_many_as_were_asked_for(row: dict[str, Any], tool: str, tmp_path: Path) -> None:
    """As the command line said, and the program's own optimizer counts them: a long one is one step."""
    asked = constant("captures.py", "ORDER")[f"{row['program']}:{row['fault']}"]
    profile = api.open(new.unpacked(row["program"], row["fault"], tool, tmp_path), cache=False)
    assert profile.iterations().rows.height == asked


def test_what_was_asked_before_anything_was_mended_is_counted() -> None:
    """The counts are of the commit that is named there, and stay."""
    for blind in new._file()["blind"]:
        rows = [row for row in new.table() if row.get("blind") == blind["commit"]]
        assert sum(len(row["tools"]) for row in rows) == blind["captures"]


def answer(truth: float | None, *said: Said) -> new.Answer:
    return new.Answer("A1", "gpt", "by-hand", "nsys", 40.0, truth, ("attention",), said)


def test_what_the_table_says() -> None:
    near, far = (Said("attention", "0", ms * 1_000_000, "certain") for ms in (18, 5))
    other = Said("host-sync", "0", 30_000_000, "possible")
    slowed = Said("profiler-distortion", "0", 30_000_000, "certain")
    assert answer(20.0, slowed, other, near).verdict == "named, -10%"
    assert answer(20.0, far).verdict == "named, -75% (off)"
    assert answer(20.0, other, other, near).verdict == "not named"
    assert answer(None, near).verdict == "named, not timed"
    assert replace(answer(None, near), row="").verdict == ""
    unsure = replace(answer(20.0, far), error_ms=6.0)
    assert unsure.verdict == "named, -75% (truth unsure)" and not unsure.kept
    assert "| host-sync 30 ms (possible) | – | not named |" in new.text([answer(20.0, slowed, other)])

"""Every format of an answer, and where it goes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest

ANALYSES = ("info", "setup", "window", "streams")


@pytest.mark.parametrize("command", ANALYSES)
def test_json_follows_the_contract(stepscope, command):
    ran = stepscope(command, "x.sqlite", "--format", "json")
    assert (ran.status, ran.err) == (0, "")
    answer = json.loads(ran.out)
    keys = ["schema", "command", "profile", "window", "rows", "rows_total", "summary", "notes", "note_details"]
    assert list(answer) == keys and answer["rows_total"] == len(answer["rows"])
    assert (answer["schema"], answer["command"]) == ("stepscope/1", command)
    source = {"file": "fake.sqlite", "format": "nsys-sqlite", "tool": "2025.3.1", "schema": "3.20.3"}
    assert answer["profile"] == {"sources": [source], "ranks": 2, "world": None}
    assert answer["notes"][0] == "the recording began late"
    for row in answer["rows"]:
        assert all(isinstance(v, int | None) for k, v in row.items() if k.endswith(("_ns", "_bytes")))


def test_json_window_has_one_entry_per_rank(stepscope):
    (first, second) = json.loads(stepscope("streams", "x", "--format", "json").out)["window"]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first["label"], first["index"], first["count"]) == ("step 1", 1, 3)
    assert (first["gpu_start_ns"], first["gpu_end_ns"]) == (7_000_000, 17_000_000)  # from the end of step 0's work


def test_table_says_units_window_and_notes(stepscope):
    ran = stepscope("streams", "x.sqlite")
    assert ran.status == 0
    assert "window: step 1 (#1 of 3) on ranks 0-1: 10.00 ms of GPU time" in ran.out
    assert "note: the recording began late" in ran.out
    assert "4.000 ms" in ran.out
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


def test_csv_and_parquet_hold_the_same_bare_numbers(stepscope, tmp_path: Path):
    ran = stepscope("window", "x", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert rows[0]["gpu_start_ns"] == "7000000"
    assert ran.err == "note: the recording began late\n"
    stepscope("window", "x", "-o", tmp_path / "w.parquet")
    frame = pl.read_parquet(tmp_path / "w.parquet")
    assert frame.columns == list(rows[0])
    assert frame["gpu_start_ns"].to_list() == [7_000_000, 7_000_000]


def test_a_page_of_rows_says_which_it_is(stepscope):
    ran = stepscope("window", "x", "--sort", "rank", "--limit", "1", "--format", "csv")
    assert [row["rank"] for row in csv.DictReader(io.StringIO(ran.out))] == ["1"]
    assert ran.err.splitlines()[-1] == "note: rows 1-1 of 2; --offset 1 for the next"
    last = stepscope("window", "x", "--sort", "rank", "--limit", "1", "--offset", "1")
    assert "rows 2-2 of 2\n" in last.out
    assert stepscope("window", "x", "--sort", "nowhere").err.startswith("stepscope: --sort nowhere: no column")


def test_markdown_is_one_table(stepscope):
    lines = stepscope("setup", "x", "--format", "md").out.splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("|"))
    cells = [line.count("|") for line in lines[header : header + 4]]
    assert len(set(cells)) == 1


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.json", b"{"), ("a.csv", b"rank,"), ("a.MD", b"**"), ("a.txt", b"info:"), ("a.parquet", b"PAR1")],
)
def test_suffix_chooses_the_format(stepscope, tmp_path: Path, name, begins):
    assert stepscope("info", "x", "-o", tmp_path / name).out == ""
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_format_wins_over_suffix(stepscope, tmp_path: Path):
    stepscope("info", "x", "-o", tmp_path / "a.txt", "--format", "json")
    assert json.loads((tmp_path / "a.txt").read_text())["command"] == "info"


def test_unknown_suffix_is_refused(stepscope, tmp_path: Path):
    ran = stepscope("info", "x", "-o", tmp_path / "a.xlsx")
    assert ran.status == 2
    assert "suffix" in ran.err


def test_rank_selects(stepscope):
    answer = json.loads(stepscope("window", "x", "--rank", "1", "--format", "json").out)
    assert [row["rank"] for row in answer["rows"]] == [1]
    assert answer["profile"]["ranks"] == 1

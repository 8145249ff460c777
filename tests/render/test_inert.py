"""Names of a trace do nothing where they are shown: planted into kernels and ranges, and asked for in every format."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.cli.main import run
from stepscope.model.visible import visible
from stepscope.render.inert import markdown
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

PAYLOADS = (
    "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "a\x00b", "\u202egnp.exe", "=1+1", "@SUM(A1)", "<img src=x onerror=y>",
    "![x](http://x)", "[x](javascript:y)", "@everyone", "|a|b|", "`code`",
)  # fmt: skip
COMMANDS = ("info", "kernels", "nvtx", "timeline", "exposed", "stats")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inert")
    simulate_to(Scenario(pp=2, ep=1, layers=4, micro_batches=4, steps=2), folder, ("nsys",))
    (file,) = folder.glob("*.sqlite")
    with closing(sqlite3.connect(file)) as db:
        kernels = [i for (i,) in db.execute("SELECT DISTINCT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL")]
        for number, name in enumerate(kernels):
            db.execute("UPDATE StringIds SET value = ? || value WHERE id = ?", (PAYLOADS[number % len(PAYLOADS)], name))
        db.execute("UPDATE NVTX_EVENTS SET text = ? || text WHERE text LIKE 'stage%'", (PAYLOADS[0],))
        db.commit()
    return file


def orders(text: str) -> list[str]:
    """What a terminal could take for more than a character, told by Unicode's own classes."""
    bidirectional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return [
        c
        for c in text
        if (unicodedata.category(c) == "Cc" and c not in "\n\t") or unicodedata.bidirectional(c) in bidirectional
    ]


@pytest.mark.parametrize("format", ["table", "md", "csv", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_order_reaches_a_terminal(
    planted: Path, command: str, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [] if command == "stats" else ["--format", format, "--top", "0"]
    assert run([command, str(planted), *given]) == 0
    said = capsys.readouterr()
    assert orders(said.out.replace("\r\n", "\n")) == [] and orders(said.err) == []


def test_json_keeps_the_names(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", str(planted), "--format", "json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]]
    for payload in ("\x1b[2J", "\x9b31m", "a\x00b"):
        assert any(name.startswith(payload) for name in names)


def test_a_spreadsheet_computes_nothing(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", str(planted), "--format", "csv"]) == 0
    cells = [cell for row in csv.DictReader(io.StringIO(capsys.readouterr().out)) for cell in row.values()]
    assert any(cell.startswith("'=1+1") for cell in cells)
    assert not [cell for cell in cells if re.match(r"[=+@\t]", cell)]


def test_an_error_is_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(tmp_path / "\x1b[31mred\x9b.sqlite")]) == 2
    said = capsys.readouterr().err
    assert orders(said) == [] and "\\x1b[31mred" in said


@given(st.text())
def test_visible_leaves_the_rest(text: str) -> None:
    shown = visible(text)
    assert orders(shown) == []
    if not orders(text):
        assert set(shown) <= {*text, *"\\x0123456789abcdefu"}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_markdown_shows_it_as_it_is(payload: str) -> None:
    shown = markdown(payload)
    assert not re.search(r"(?<!\\)[`*\[\]|]|<(?!!--)|@\w", shown)

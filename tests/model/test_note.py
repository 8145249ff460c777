"""Notes: data beside the text, through workers, the cache and JSON; and a code means one thing."""

from __future__ import annotations

import ast
import json
import pickle
import re
import string
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import stepscope
from stepscope.model.note import Note, folded
from stepscope.model.result import Result
from stepscope.model.texts import NOTES
from stepscope.render.json import to_json

NOTE = Note("cut-off", "rank 2: no GPU work", severity="warning", origin="recording", ranks=[2])


def test_a_note_is_its_text_with_data():
    assert NOTE == "rank 2: no GPU work" and isinstance(NOTE, str)
    assert (NOTE.code, NOTE.severity, NOTE.origin, NOTE.ranks) == ("cut-off", "warning", "recording", (2,))
    assert NOTE.of("a.sqlite") == "a.sqlite: rank 2: no GPU work" and NOTE.of("a.sqlite").code == "cut-off"


def test_it_survives_workers_and_the_cache():
    for copy in (pickle.loads(pickle.dumps(NOTE)), Note.from_data(json.loads(json.dumps(NOTE.data())))):
        assert (copy, copy.data()) == (NOTE, NOTE.data())


def test_json_has_texts_and_details():
    body = json.loads(to_json(Result(pl.DataFrame({"a": [1]}), notes=[NOTE, Note("one-clock", "one file")])))
    assert body["notes"] == ["rank 2: no GPU work", "one file"]
    assert body["note_details"] == [
        {"code": "cut-off", "severity": "warning", "origin": "recording", "text": str(NOTE), "ranks": [2]},
        {"code": "one-clock", "severity": "info", "origin": "analysis", "text": "one file"},
    ]


def test_warnings_of_the_profiler_become_one_line():
    warned = [Note("profiler-warning", f"the profiler warned: {k}") for k in "ab"]
    assert folded([warned[0], NOTE]) == [warned[0], NOTE]
    first, short = folded([warned[0], NOTE, warned[1]])
    assert first is NOTE and short.code == "profiler-warnings" and "2 warnings" in short


def test_a_code_means_one_thing():
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    from note_codes import note_codes

    meanings = defaultdict(set)
    for note in note_codes():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", note.code), note
        meanings[note.code].add((note.severity, note.origin))
    assert len(meanings) > 50
    assert {code: m for code, m in meanings.items() if len(m) > 1} == {}


def uses() -> Iterator[tuple[str, ast.Call]]:
    """Every note that the code makes, and where."""
    root = Path(stepscope.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "noted":
                yield f"{file.relative_to(root)}:{node.lineno}", node


def test_every_note_stands_in_the_tables_and_is_filled_in():
    made = set()
    for where, call in uses():
        (key,) = call.args
        assert isinstance(key, ast.Constant) and key.value in NOTES, where
        made.add(key.value)
        given = {word.arg for word in call.keywords} - {"ranks", "severity"}
        asked = {name for _, name, _, _ in string.Formatter().parse(NOTES[key.value][0]) if name is not None}
        assert given == asked, (where, given ^ asked)
    assert made == set(NOTES), "a text that nobody says"


def test_no_note_is_made_beside_the_tables():
    root = Path(stepscope.__file__).parent
    free = [
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if re.search(r"(?<![\w.])Note\(\s*[\"']", file.read_text("utf-8"))
    ]
    assert free == []

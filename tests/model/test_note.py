"""Notes: data beside the text, through workers, the cache and JSON; and a code means one thing."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections import defaultdict
from pathlib import Path

import polars as pl

import stepscope
from stepscope.model.note import Note, folded
from stepscope.model.result import Result
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
    for note in note_codes(Path(stepscope.__file__).parent):
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", note.code), note
        meanings[note.code].add((note.severity, note.origin))
    assert len(meanings) > 50
    assert {code: m for code, m in meanings.items() if len(m) > 1} == {}

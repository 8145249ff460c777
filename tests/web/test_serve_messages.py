"""What the server answers is what is declared: a field that is missing, or of another type, is refused."""

from __future__ import annotations

import msgspec
import pytest
from serving import client, decoded, scene

from fake import FakeSource, nvtx, op
from stepscope import api
from stepscope.web import messages
from stepscope.web.answers import Answers
from stepscope.web.scene import scene_of


@pytest.fixture(scope="module")
def known(served_job):
    answers = Answers([scene(served_job)])
    answers._conclude()
    return client(answers)


def ask(known, kind, name, **parameters):
    answer = known.get(f"/api/{name}", params=parameters)
    assert answer.status_code == 200, answer.text
    return msgspec.convert(answer.json(), kind)


def test_answers_are_as_declared(known):
    (profile,) = ask(known, messages.SceneData, "scene")["profiles"]
    ask(known, messages.Alive, "alive")
    search = ask(known, messages.SearchData, "search", q="AllReduce")
    match = ask(known, messages.MatchData, "match", q="AllReduce", k=0)
    details = ask(known, messages.DetailsData, "details", lane=match["lane"], row=match["row"])
    assert search["count"] and {arrow["kind"] for arrow in details["arrows"]} == {"launch", "comm"}
    assert ask(known, messages.SpanData, "span", **{"from": 0, "to": profile["end"]})["overlap"] is not None
    concluded = ask(known, messages.Conclusion, "findings")
    assert concluded["ready"] and concluded.get("findings") and concluded.get("steps")


def test_heads_of_blocks_are_as_declared(known):
    answer = known.get("/api/block", params={"lanes": "0-3", "from": 0, "to": 10**7, "px": 100})
    head, columns = decoded(answer.content)
    assert set(msgspec.convert(head, messages.BlockHead)["columns"]) == set(columns)


def test_rows_of_a_query_are_as_declared(known):
    pytest.importorskip("duckdb", reason="the extra `sql` is not installed")
    rows = ask(known, messages.SqlData, "sql", q="SELECT rank, start_ns, dur_ns FROM ops LIMIT 2")
    assert len(rows["places"]) == 2


def test_an_answer_that_has_begun_is_as_declared(served_job):
    assert ask(client(Answers([scene(served_job)])), messages.Conclusion, "findings")["ready"] is False


def test_a_mark_that_turns_the_direction_of_a_text_is_written_out() -> None:
    """Names of a block are beside columns, in a message that is not all JSON."""
    tables = {"ops": [op(0, 10, "evil\u202elenrek")], "ranges": [nvtx(0, 20, "step \u202e0")]}
    known = client(Answers([scene_of(api.Profile([FakeSource(tables)]), ("a",))]))
    lanes = len(known.get("/api/scene").json()["profiles"][0]["lanes"])
    body = known.get("/api/block", params={"lanes": f"0-{lanes - 1}", "from": 0, "to": 20, "px": 100}).content
    assert {"evil\\u202elenrek", "step \\u202e0"} <= set(decoded(body)[0]["texts"].values())
    assert "\u202e".encode() not in body
    for question in ("search?q=evil", "span?from=0&to=20&ranks=0", "findings"):
        text = known.get(f"/api/{question}").text
        assert "\u202e" not in text and "\\u202e" not in text.replace("\\\\u202e", "")

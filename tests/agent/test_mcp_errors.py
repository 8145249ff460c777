"""Bad arguments get typed errors: a code, a line, and a call that helps, which can be sent as it is."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_client import asked
from stepscope import api, questions
from stepscope.agent.failures import CODES, Refused
from stepscope.agent.options import analysis_of
from stepscope.agent.profiles import Profiles
from stepscope.agent.roots import Roots
from stepscope.agent.server import Server, server

TRACE = "moe4mps.sqlite"


def failed(made: Server, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The error; what it suggests is answered."""
    result = asked(made, tool, **arguments)
    assert result.is_error
    error: dict[str, Any] = result.structured_content["error"]
    assert error["code"] in CODES and error["message"] and "\n" not in error["message"]
    following = asked(made, error["next"]["tool"], **error["next"]["arguments"])
    assert not following.is_error, following.structured_content
    return error


@pytest.mark.parametrize(
    ("code", "tool", "arguments"),
    [
        ("unknown_tool", "runs", {}),
        ("bad_argument", "run", {"profile": TRACE}),
        ("bad_argument", "run", {"profile": TRACE, "analysis": "overlap", "by": "purpose"}),
        ("bad_argument", "run", {"profile": TRACE, "analysis": "overlap", "options": 3}),
        ("bad_argument", "run", {"profile": TRACE, "analysis": "overlap", "detail": "huge"}),
        ("bad_argument", "run", {"profile": TRACE, "analysis": "overlap", "limit": 0}),
        ("bad_argument", "run", {"profile": 7, "analysis": "overlap"}),
        ("bad_argument", "run", {"profile": [], "analysis": "overlap"}),
        ("bad_argument", "run", {"profile": ["x" * 50] * 100, "analysis": "overlap"}),
        ("bad_argument", "list", {"what": "everything"}),
        ("bad_argument", "diff", {"base": TRACE}),
        ("bad_argument", "sql", {"profile": TRACE, "query": "SELECT 1" + " " * 10_000}),
        ("bad_argument", "sql", {"profile": TRACE, "query": "SELECT 1", "answers": {"ops": {"analysis": "info"}}}),
        ("bad_argument", "sql", {"profile": TRACE, "query": "SELECT 1", "answers": {"A B": {"analysis": "info"}}}),
        ("bad_argument", "sql", {"profile": TRACE, "query": "SELECT 1", "answers": {"a": "info"}}),
        (
            "bad_argument",
            "sql",
            {"profile": TRACE, "query": "SELECT 1", "answers": {"a": {"analysis": "info", "by": 1}}},
        ),
        ("unknown_analysis", "sql", {"profile": TRACE, "query": "SELECT 1", "answers": {"a": {"analysis": "inf"}}}),
        ("unknown_analysis", "run", {"profile": TRACE, "analysis": "overlapp"}),
        ("unknown_analysis", "describe", {"name": "nothing"}),
        ("unknown_option", "run", {"profile": TRACE, "analysis": "overlap", "options": {"bye": "stage"}}),
        ("unknown_option", "run", {"profile": TRACE, "analysis": "nvtx", "options": {"flame": "x.txt"}}),
        ("unknown_option", "run", {"profile": TRACE, "analysis": "source", "options": {"stacks": "x.txt"}}),
        ("bad_option", "run", {"profile": TRACE, "analysis": "overlap", "options": {"by": "colour"}}),
        ("bad_option", "run", {"profile": TRACE, "analysis": "overlap", "options": {"step": [1]}}),
        ("bad_option", "run", {"profile": TRACE, "analysis": "overlap", "options": {"top": "few"}}),
        ("bad_input", "run", {"profile": TRACE, "analysis": "overlap", "options": {"rank": "x"}}),
        ("bad_input", "run", {"analysis": "overlap"}),
        ("bad_input", "open", {"profile": "missing.sqlite"}),
        ("bad_input", "sql", {"profile": TRACE, "query": "DROP TABLE ops"}),
        ("bad_input", "sql", {"profile": TRACE, "query": "SELECT no_column FROM ops"}),
        ("cannot_answer", "run", {"profile": TRACE, "analysis": "mfu"}),
        ("cannot_answer", "run", {"profile": "train.sqlite", "analysis": "overlap", "options": {"chunk": True}}),
        ("bad_cursor", "run", {"profile": TRACE, "analysis": "overlap", "cursor": "nonsense"}),
    ],
)
def test_codes(made: Server, code: str, tool: str, arguments: dict[str, Any]) -> None:
    assert failed(made, tool, **arguments)["code"] == code


def test_a_misplaced_option_is_put_right(made: Server) -> None:
    error = failed(made, "run", profile=TRACE, analysis="overlap", by="purpose", options={"step": True})
    assert error["next"]["arguments"]["options"] == {"by": "purpose", "step": True}


def test_what_was_sent_in_error_does_not_come_back_whole(made: Server) -> None:
    for arguments in (
        {"profile": "x" * 200_000, "analysis": "info"},
        {"profile": TRACE, "analysis": "y" * 200_000},
        {"profile": TRACE, "analysis": "overlap", "options": {"stage": "(" * 100_000}},
        {"profile": TRACE, "analysis": "overlap", "z": "z" * 200_000},
    ):
        error = failed(made, "run", **arguments)
        assert len(str(error)) < 10_000


def test_near_names_are_offered(made: Server) -> None:
    assert "overlap" in failed(made, "run", profile=TRACE, analysis="overlaps")["hint"]
    assert "by" in failed(made, "run", profile=TRACE, analysis="overlap", options={"bi": "x"})["hint"]


def test_a_hint_of_how_to_capture_reaches_the_agent(made: Server) -> None:
    error = failed(made, "run", profile=TRACE, analysis="compile")
    assert error["code"] == "cannot_answer" and "stepscope capture run --with" in error["hint"]


def test_a_cursor_of_another_question_is_refused(made: Server) -> None:
    page = asked(made, "run", profile=TRACE, analysis="timeline").structured_content["page"]
    arguments = page["next"]["arguments"]
    assert not asked(made, "run", **arguments).is_error
    for change in ({"analysis": "idle"}, {"detail": "full"}, {"options": {"rank": 1}}, {"profile": "payloads.sqlite"}):
        assert failed(made, "run", **{**arguments, **change})["code"] == "bad_cursor"


def test_a_cursor_of_files_that_have_changed_is_refused(traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    shutil.copy(traces / "moe4mps.sqlite", path)
    made = server(Roots([tmp_path]))
    first = asked(made, "run", profile="trace.sqlite", analysis="timeline").structured_content
    shutil.copyfile(traces / "payloads.sqlite", path)
    assert failed(made, "run", **first["page"]["next"]["arguments"])["code"] == "bad_cursor"
    again = asked(made, "run", profile="trace.sqlite", analysis="timeline").structured_content
    assert again["page"]["of"] != first["page"]["of"]  # never the answer of the old file


def test_a_defect_is_told_without_its_traceback(
    made: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("inner matter")

    monkeypatch.setattr(api, "analyse", broken)
    with caplog.at_level(logging.ERROR):
        result = asked(made, "run", profile=TRACE, analysis="clocks")
    assert result.is_error and result.structured_content["error"]["code"] == "internal"
    assert "inner matter" not in str(result.structured_content)
    assert "inner matter" in caplog.text


def test_only_so_many_profiles_stay_open(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        shutil.copy(traces / "train.sqlite", tmp_path / f"{n}.sqlite")
    opened: list[str] = []
    real = api.open
    monkeypatch.setattr(api, "open", lambda *paths, **how: opened.append(paths[0].name) or real(*paths, **how))
    profiles = Profiles(Roots([tmp_path]), most=2)
    for name in ("0", "1", "0", "2", "0", "1"):  # 2 drives out 1, and 1 then 2
        with profiles.asked(f"{name}.sqlite"):
            pass
    assert opened == ["0.sqlite", "1.sqlite", "2.sqlite", "1.sqlite"]
    shutil.copyfile(traces / "moe4mps.sqlite", tmp_path / "1.sqlite")
    with profiles.asked("1.sqlite") as profile:
        assert profile.ranks.height == 4


def test_a_failed_gate_is_an_answer(made: Server) -> None:
    options = {"fail_on": ["1%"]}
    answer = asked(made, "run", profile=TRACE, analysis="diagnose", options=options)
    assert not answer.is_error
    assert "1%" in answer.structured_content["gate"] and answer.structured_content["rows"]


def test_no_option_of_an_agent_writes_or_draws() -> None:
    """A path of which its analysis does not say that it is read is not offered; each says what it does."""
    from stepscope.agent.options import offered
    from stepscope.model.option import Effect

    for name in questions.names():
        analysis = questions.get(name)
        for option in analysis.options:
            if "Path" in str(option.type):
                assert option.effect is not None, f"{name} --{option.name}: reads or writes?"
            assert (option.name in offered(analysis)) == (option.effect in (None, Effect.READS))


@pytest.mark.parametrize("name", ["stats", "rules", "recipe"])
def test_commands_of_nsys_are_told_from_analyses(name: str) -> None:
    """An agent that asks for them learns what answers the same, not only that there is no such thing."""
    with pytest.raises(Refused, match="is a command, not an analysis") as raised:
        analysis_of(name)
    named = re.findall(r"`([a-z-]+)`", str(raised.value))
    assert set(named) & set(questions.names()) and raised.value.next_call

"""The Python front end: the same questions as methods."""

from __future__ import annotations

import pytest

import stepscope
from fake import three_steps
from stepscope import api
from stepscope.api import opening
from stepscope.model.note import Note


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> api.Profile:
    monkeypatch.setattr(opening, "find_profiles", lambda *_: [])
    monkeypatch.setattr(opening.Workers, "open", lambda *_: ([three_steps()], None))
    return stepscope.open("x.sqlite")


def test_an_analysis_is_a_method(profile):
    result = profile.window(anchor="^step", index=0, rank="1")
    assert result.rows["rank"].to_list() == [1]
    assert result.rows["label"].to_list() == ["step 0"]
    assert (result.command, result.ranks) == ("window", 1)
    assert result.sources[0].file == "fake.sqlite"
    assert result.notes[0] == "the recording began late"
    assert "step 0" in result._repr_html_()


def test_tables_are_frames(profile):
    assert profile.ops.height == 12
    assert profile.ranks["rank"].to_list() == [0, 1]


def test_dir_lists_the_questions(profile):
    assert {"window", "streams", "ops"} <= set(dir(profile))
    assert profile.streams.__doc__.startswith("What each stream is for")
    assert "2 ranks" in repr(profile)


def test_unknown_keywords_name_the_valid_ones(profile):
    with pytest.raises(TypeError, match=r"no option .ankor.; it has step, chunk, anchor, index, match, period, whole"):
        profile.window(ankor="step")
    with pytest.raises(TypeError, match="it has rank"):
        profile.setup(anchor="step")


def test_unknown_questions_are_attribute_errors(profile):
    with pytest.raises(AttributeError, match="no table or analysis 'nonsense'"):
        _ = profile.nonsense
    assert not hasattr(profile, "_repr_mimebundle_")


def test_errors_are_the_package_s(profile):
    with pytest.raises(stepscope.BadInput):
        profile.window(rank="7")
    with pytest.raises(stepscope.CannotAnswer):
        profile.window(anchor="no such range")
    with pytest.raises(stepscope.BadInput):
        stepscope.open()
    with pytest.raises(AttributeError):
        _ = stepscope.nonsense


@pytest.mark.parametrize(("text", "ranks"), [("0,3-5", [0, 3, 4, 5]), (" 2 ", [2]), (7, [7]), ([1, 2], [1, 2])])
def test_ranks(text, ranks):
    assert api.parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "1-", "5-3", "-1", "0-99999999"])
def test_ranks_that_are_none(text):
    with pytest.raises(stepscope.BadInput):
        api.parse_ranks(text)


def test_notes_are_said_once(profile):
    profile._sources[0].quality.note(Note("twice", "said twice"))
    first = profile.streams()
    assert len(first.notes) == len(set(first.notes))
    assert profile.streams().notes == first.notes

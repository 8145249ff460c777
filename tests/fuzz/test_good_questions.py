"""Good traces, any options: a part of what `make fuzz ARGS=--good` does, by the same seeds every time."""

from __future__ import annotations

import random
from pathlib import Path

import click
import good_questions
import pytest
from good_traces import packed, shared

from fake import make, op

#: One of each format, and those whose windows, labels and communication differ most.
_QUICK = ("retry.snapshot.pickle.gz", "qwen3_kineto.pt.trace.json.gz", "backtrace.sqlite.gz", "gpu.pftrace")
_SMALL = 200_000
#: What lies beside traces.
_NO_PROFILES = ("measured.json", "invalid_json.json.gz")


def _traces() -> list[object]:
    found = [t for t in [*packed(), *shared()] if t.stat().st_size < _SMALL and t.name not in _NO_PROFILES]
    return [pytest.param(t, id=t.name, marks=() if t.name in _QUICK else pytest.mark.slow) for t in found]


@pytest.mark.parametrize("trace", _traces())
def test_only_answers_and_refusals_come_out(trace: Path) -> None:
    record = good_questions.asked(trace, 0, 7)
    assert record["failures"] == {} and record["slow"] == []
    assert sum(record["ended"].values()) >= good_questions.FEW


def test_every_command_and_nearly_every_option_is_drawn(tmp_path: Path) -> None:
    """What is declared tomorrow is drawn, too: nobody has to add it here."""
    from drawn_lines import NOT_ASKED, Place, commands, drawn, every_pair, pairs

    from stepscope.cli.main import cli

    groups = {name.split()[0] for name in commands()}
    assert groups | NOT_ASKED == set(cli.list_commands(click.Context(cli)))
    place = Place(make(ops=[op(0, 10)]), (tmp_path / "x.sqlite",), tmp_path)
    r, seen = random.Random(1), set[str]()
    for _ in range(4000):
        seen |= pairs(drawn(r, place))
    assert set(commands()) <= seen <= every_pair()
    assert len(seen) > 0.95 * len(every_pair())


def test_what_goes_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that raises what is none of ours is a failure of the round."""

    def broken(*_: object, **__: object) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(good_questions, "_rendered", broken)
    trace = next(t for t in packed() if t.name == "qwen3_kineto.pt.trace.json.gz")
    assert any("planted" in text for text in good_questions.asked(trace, 1, 7)["failures"])

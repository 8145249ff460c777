"""The oracle of the fuzzer finds what it is there for: planted faults, each of which it must name."""

from __future__ import annotations

import polars as pl
import pytest
from ask_mutant import Outcome
from effects import together
from oracle import answer, changed, impossible

from stepscope.errors import BadInput
from stepscope.model.note import Note
from stepscope.model.result import Result

_PARTS = {"window_ns": 10, "compute_ns": 4, "comm_exposed_ns": 3, "copy_exposed_ns": 2, "idle_ns": 1}


def _result(notes: tuple[Note, ...] = (), **columns: object) -> Result:
    return Result(pl.DataFrame({name: [value] for name, value in columns.items()}), notes=list(notes))


@pytest.mark.parametrize(
    ("question", "columns", "says"),
    [
        ("overlap", {"comm_ns": -1}, "comm_ns is -1"),
        ("breakdown", {"idle_pct": 100.1}, "idle_pct is 100.1"),
        ("mfu", {"mfu_pct": float("nan")}, "not finite"),
        ("breakdown", _PARTS | {"idle_ns": 2}, "parts are not the window"),
        ("timeline", {"start_ns": 5, "end_ns": 4, "dur_ns": -1}, "ends before it starts"),
        ("timeline", {"start_ns": 5, "end_ns": 9, "dur_ns": 5}, "not as long"),
        ("overlap", {"comm_ns": 5, "exposed_ns": 6}, "exposed_ns is more than comm_ns"),
        ("roofline", {"l2_pct": 150.0}, "l2_pct is 150.0"),
    ],
)
def test_figures_that_cannot_be(question: str, columns: dict[str, object], says: str) -> None:
    assert any(says in text for text in impossible(question, _result(**columns)))


def test_figures_that_can_be() -> None:
    assert not list(impossible("breakdown", _result(**_PARTS)))
    assert not list(impossible("compare", _result(diff_ns=-5, change_pct=250.0)))


def test_shares_of_one_whole() -> None:
    rows = pl.DataFrame({"rank": [0, 0, 1], "cause": ["a", "b", "a"], "share_pct": [60.0, 41.0, 100.0]})
    assert list(impossible("idle", Result(rows))) == ["shares sum to 101.0"]


def test_what_changes_in_silence() -> None:
    before, other = answer(_result(compute_ns=5)), answer(_result(compute_ns=6))
    context = answer(_result((Note("no-peer", "x"),), compute_ns=6))
    said = answer(_result((Note("rows-impossible", "2 rows left out", severity="loss"),), compute_ns=6))
    assert changed("same", before, before) is None
    assert "5 → 6" in str(changed("same", before, other))
    assert "5 → 6" in str(changed("same", before, said))
    assert "no answer" in str(changed("same", before, None))
    assert "in silence" in str(changed("told", before, other))
    assert "in silence" in str(changed("told", before, context))
    assert changed("told", before, said) is None
    assert changed("told", before, None) is None
    assert changed("free", before, other) is None


def test_another_path_is_no_other_figure() -> None:
    assert answer(_result(n=1, file="a.sqlite")).figures == answer(_result(n=1, file="b.sqlite")).figures


def test_effects_of_several_defects() -> None:
    assert together([("a", "same"), ("b", "told")]) == ("a; b", "told")
    assert together([("a", "told"), ("b", "free")]) == ("a; b", "free")
    assert together([("a", "same")]) == ("a", "same")


def test_errors_that_are_none_of_ours() -> None:
    outcome = Outcome()

    def panics() -> None:
        raise BaseException("a panic of Polars is no Exception")

    def refuses() -> None:
        raise BadInput("no such file", "check the path")

    outcome.ask("x", panics)
    outcome.ask("x", refuses)
    assert [f.sort for f in outcome.failures] == ["unexpected"]
    assert (outcome.refused, outcome.kind) == (1, "failed")

"""Simulated faults of rows B and D: what the page says is what the table has, and one of them asked again."""

from __future__ import annotations

from pathlib import Path

from promises import catalogue, simulated

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"


def test_the_page_has_every_row_of_the_table() -> None:
    part = catalogue.part(PAGE.read_text("utf-8"))
    shown = [line.split(" | ")[:4] for line in part.splitlines() if line.startswith(("| B", "| D"))]
    of_table = [[f"| {p.row}", catalogue._program(p.job), p.what, p.tool] for p in catalogue.table()]
    assert shown == of_table


def test_programs_are_none_of_those_that_the_page_was_made_with() -> None:
    used = [{"schedule": s, **shape} for s, shapes in simulated.SHAPES.items() for shape in shapes]
    for planted in catalogue.table():
        assert planted.job not in used, planted


def test_a_row_asked_again() -> None:
    (first, *_) = [p for p in catalogue.table() if p.ids == ("late-node",) and p.job["schedule"] == "ddp"]
    answer = catalogue.answer(first)
    assert answer.kept, answer
    assert catalogue.text([answer]).splitlines()[-1] in PAGE.read_text("utf-8").splitlines()

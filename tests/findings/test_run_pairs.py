"""Faults of the run on a real GPU: programs that save, evaluate, collect garbage or empty the cache every few steps.

The truth is what the mean step takes with and without, both unprofiled (tests/promises/new.toml). The causes are named
among the first two findings, and the truth is within the interval of the promise.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from promises import new
from stepscope import api

ALL = [(row, tool) for row in new.table() if row["row"].startswith("C") for tool in row["tools"]]
ROWS = [(row, tool) for row, tool in ALL if row["row"] in ("C1", "C2", "C4")]
OF_THE_RUN = {"checkpoint", "drift", "epoch-end", "evaluation", "pace", "spikes", "step-kinds", "warm-up"}
#: An epoch ends in these, too, and its first batch is late.
ENDS = {"cnn", "lightning_cnn"}


def name(value: Any) -> str:
    return value if isinstance(value, str) else f"{value['program']}-{value['fault']}"


def marks(row: dict[str, Any], tool: str) -> list[pytest.MarkDecorator]:
    return [] if (row["program"], tool) == ("gpt", "nsys") else [pytest.mark.slow]


@pytest.mark.parametrize(("row", "tool"), [pytest.param(r, t, marks=marks(r, t)) for r, t in ROWS], ids=name)
def test_the_fault_is_named_and_its_cost_is_true(row: dict[str, Any], tool: str, tmp_path: Path) -> None:
    result = api.open(new.unpacked(row["program"], row["fault"], tool, tmp_path), cache=False).diagnose()
    found = [r for r in result.rows.head(2).iter_rows(named=True) if r["id"] in row["ids"]]
    truth_ns = 1e6 * (statistics.fmean(row["with_ms"]) - statistics.fmean(row["without_ms"]))
    assert len(found) == 1, result.rows["title"].to_list()
    assert found[0]["recoverable_low_ns"] <= truth_ns <= found[0]["recoverable_high_ns"]
    assert result.summary["mean_step_ns"] == pytest.approx(1e6 * statistics.fmean(row["with_ms"]), rel=0.25)


@pytest.mark.parametrize(("row", "tool"), [pytest.param(r, t, marks=marks(r, t)) for r, t in ALL], ids=name)
def test_every_row_is_named_and_what_is_off_has_a_reason(row: dict[str, Any], tool: str, tmp_path: Path) -> None:
    answer = new.planted(row, tool, tmp_path)
    assert answer.named, answer.faults
    assert answer.kept or "off" in row, answer.verdict


@pytest.mark.slow
@pytest.mark.parametrize(("program", "fault", "tool"), new.twins())
def test_a_program_without_such_a_fault_has_no_finding_of_the_run(
    program: str, fault: str, tool: str, tmp_path: Path
) -> None:
    answer = new.healthy(program, fault, tool, tmp_path)
    found = {said.id for said in answer.faults} & OF_THE_RUN
    assert found <= ({"epoch-end"} if fault == "epochs" and program in ENDS else set()), answer.faults


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in new.table("captured") if row["row"] == "C6"], ids=name)
def test_a_program_that_loads_weights_is_said_to_start_up(row: dict[str, Any], tmp_path: Path) -> None:
    """What start-up is made of is said above the findings, and shares are of what follows it."""
    answer = new.captured(row, "nsys", tmp_path)
    assert answer.note == "capture-starts-up" and answer.verdict == "named, not timed"
    assert not {"data-stall", "allocator-churn", "exposed-copies"} & {said.id for said in answer.faults}

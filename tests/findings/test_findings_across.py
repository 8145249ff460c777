"""What the detectors across ranks say, and do not say, beside the faults that they are for."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from faultcases import diagnosed, scenario
from stepscope.simulate.job.scenario import Scenario


def test_uneven_stages_are_no_straggler() -> None:
    told = diagnosed(scenario("1f1b", layers=5))
    assert told.first["id"] == "compute-imbalance", str(told)
    assert (told.first["ranks"], told.first["stage"]) == ("0-1", "pipeline stage 0")
    assert "straggler" not in told.result.rows["id"].to_list()
    # The bubble that uneven stages make is theirs, and not a finding of its own beside them.
    assert "pipeline-bubble" not in told.result.rows["id"].to_list(), str(told)


def test_two_slow_ranks_are_one_finding() -> None:
    """Either alone would give nothing back while the other is slow."""
    slow = Scenario(schedule="ddp", pp=1, dp=8, ep=1, layers=4, micro_batches=1, steps=2,
                    faults=("straggler:rank=2,factor=1.4", "straggler:rank=5,factor=1.4"))  # fmt: skip
    first = diagnosed(slow).first
    assert (first["id"], first["ranks"]) == ("straggler", "2,5")
    assert first["share_pct"] > 20


def test_victims_of_a_straggler_do_not_expose() -> None:
    """They wait in communication for as long as it is late: that is the straggler's, and in no other finding."""
    told = diagnosed(scenario("fsdp", "straggler:rank=1,factor=2.0"))
    others = [r for r in told.result.rows.to_dicts() if r["id"] != "straggler"]
    assert sum(r["share_pct"] for r in others) < 3, str(told)


def test_communication_is_named_by_what_it_serves() -> None:
    told = diagnosed(scenario("interleaved"), least=0.0)
    titles = [r["title"] for r in told.result.rows.to_dicts() if r["id"] == "exposed-communication"]
    assert any("the pipeline's send/recv" in t for t in titles)
    assert not any("(no stage)" in t for t in titles)


def test_what_serves_one_purpose_is_one_finding() -> None:
    """Four stages launch all-to-alls of the experts: as four findings, each would stand behind what is smaller."""
    told = diagnosed(scenario("dualpipev", None, pp=2, ep=2, layers=4), least=0.0)
    rows = [r for r in told.result.rows.to_dicts() if r["id"] == "exposed-communication"]
    (experts,) = [r for r in rows if "the experts' all-to-all" in r["title"]]
    assert "in stage2_b, stage2_f, stage4_b, stage4_f" in experts["evidence"]
    assert not [r for r in rows if "stage" in r["title"]]


def test_the_ideal_bubble_is_a_note() -> None:
    told = diagnosed(scenario("1f1b", pp=4, micro_batches=4, layers=4, nodes=1))
    assert any("schedule itself leaves 43 % of the step idle with 4 micro-batches on 4 stages; with twice" in n
               for n in told.result.notes)  # fmt: skip
    assert "pipeline-bubble" not in told.result.rows["id"].to_list(), str(told)


def test_places_are_within_the_step() -> None:
    told = diagnosed(scenario("dualpipev", "imbalance:rank=1,factor=2"))
    window = {w["rank"]: w for w in told.result.window}
    for place in told.first["where"]:
        w = window[place["rank"]]
        assert w["gpu_start_ns"] <= place["start_ns"] < place["end_ns"] <= w["gpu_end_ns"]


@pytest.mark.parametrize("sizes", [{}, {"layers": 8, "micro_batches": 6}])
def test_two_stages_that_take_turns(sizes: dict[str, int]) -> None:
    """What is promised is what two items under way give, of which nothing is said any more."""
    job = Scenario(schedule="two-stage", pp=2, ep=1, steps=3, **sizes)
    serial, beside = (diagnosed(replace(job, depth=depth)) for depth in (1, 2))
    assert serial.first["id"] == "serialized-stages"
    gain = serial.result.summary["step_ns"] - beside.result.summary["step_ns"]
    assert serial.first["recoverable_ns"] == pytest.approx(gain, rel=0.1)
    assert "serialized-stages" not in beside.result.rows["id"].to_list()


def test_a_capture_without_steps_has_no_figures_per_step() -> None:
    """DualPipeV's trainer marks chunks: once in each of three steps is not three times in one."""
    told = diagnosed(Scenario(pp=2, ep=2, layers=4, micro_batches=4, steps=3), least=0.0)
    rows = told.result.rows.to_dicts()
    assert rows and "repeated-reduction" not in {row["id"] for row in rows}
    assert not [
        row for row in rows if re.search(r"per (rank and )?step|of the step|a step\b", row["title"] + row["evidence"])
    ]

"""What `diagnose` says of the run: spikes, checkpoints, evaluations and drift, by what they cost per step.

The simulator knows the truth: which steps are longer, by how much, and why.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cited
from fake import call, make, nvtx, op
from pairs import scenario
from stepscope import api
from stepscope.derive.run.kinds import kinds_of
from stepscope.findings.run.episodes import episodes_of
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

MS = 1_000_000
OF_THE_RUN = ("checkpoint", "drift", "epoch-end", "evaluation", "spikes", "step-kinds", "warm-up")


def simulated(folder: Path, *faults: str, steps: int = 12) -> api.Profile:
    job = engine.run(scenario(3, steps=steps, faults=faults))
    write_nsys.write(assemble.trace(job), 0, folder / "run.sqlite")
    return api.open(folder / "run.sqlite", cache=False)


def of_the_run(profile: api.Profile) -> list[dict[str, object]]:
    return [row for row in profile.diagnose().rows.iter_rows(named=True) if row["id"] in OF_THE_RUN]


def test_a_healthy_run_has_none(tmp_path):
    assert of_the_run(simulated(tmp_path)) == []


#: What is planted, what is found, when it comes, and what it costs per step: the first of twelve steps is no sample.
PLANTED = [
    (("spike:at=5,ms=60",), "spikes", "once in 11 steps", 60 / 11),
    (("spike:at=2+9,ms=60",), "spikes", "in 2 of 11 steps", 120 / 11),
    (("spike:at=3+7+11,ms=60",), "spikes", "every 4 steps", 60 / 4),
    (("checkpoint:every=3,ms=40",), "checkpoint", "every 3 steps", 40.1 / 3),
    (("checkpoint:every=3,ms=40,where=between",), "checkpoint", "every 3 steps", 40.1 / 3),
    (("evaluation:every=3",), "evaluation", "every 3 steps", 2.25 / 3),
    (("evaluation:every=3,where=between",), "evaluation", "every 3 steps", 2.25 / 3),
    (("penalty:every=4",), "step-kinds", "every 4 steps", 1.19 / 4),
    (("drift:us=300",), "drift", "3 ms over 11 steps", 0.3 * 10 / 2),
]


@pytest.mark.parametrize(("faults", "found", "when", "costs"), PLANTED)
def test_what_is_planted_is_found_first(faults, found, when, costs, tmp_path):
    profile = simulated(tmp_path, *faults)
    result = profile.diagnose()
    first = result.rows.row(0, named=True)
    assert first["id"] == found and when in first["title"]
    assert first["recoverable_ns"] == pytest.approx(costs * MS, rel=0.05)
    assert len(of_the_run(profile)) == 1
    if found != "drift":  # the mean is that of the usual step and what comes on top
        assert result.summary["mean_step_ns"] == pytest.approx(
            result.summary["step_ns"] + first["recoverable_ns"], rel=0.02
        )
        assert f"of the {result.summary['mean_step_ns'] / MS:.3g} ms mean step" in result.summary["statement"]
    assert not [text for one in cited.every(profile) for text in one.wrong]


def test_findings_of_two_kinds_of_steps_are_weighed(tmp_path):
    """Every fourth step runs three passes more, and reads numbers in each: its finding counts a fourth."""
    profile = simulated(tmp_path, "penalty:every=4,passes=3", "host-syncs:per_layer=4", steps=14)
    rows = {row["id"]: row for row in profile.diagnose().rows.iter_rows(named=True)}
    alone = [profile.diagnose(index=k, only=("host-sync",)).rows["recoverable_ns"][0] for k in (3, 4)]
    assert alone[1] > 2 * alone[0]
    assert rows["host-sync"]["recoverable_ns"] == pytest.approx(0.75 * alone[0] + 0.25 * alone[1], rel=0.1)
    assert "in the longer steps (every 4th, of " in rows["host-sync"]["evidence"]
    # What the longer steps lose to it is not lost to their kind, too.
    (kind,) = (e for e in episodes_of(profile) if e.cause == "work")
    both = rows["step-kinds"]["recoverable_ns"] + 0.25 * (alone[1] - alone[0])
    assert both == pytest.approx(kind.per_step_ns, rel=0.05)
    assert not [text for one in cited.every(profile) for text in one.wrong]


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_grows_is_told_once(ranks, tmp_path):
    """The host comes 3 ms later with every step: what the step shown has of it is no finding beside the drift."""
    sizes = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": ranks, "layers": 2, "micro_batches": 1}
    rows = {}
    for faults in ((), ("drift:rank=0,us=3000",)):
        job = engine.run(Scenario(**sizes, steps=12, faults=faults))
        write_nsys.write(assemble.trace(job), 0, tmp_path / f"{len(faults)}.sqlite")
        rows[faults] = api.open(tmp_path / f"{len(faults)}.sqlite", cache=False).diagnose().rows.to_dicts()
    healthy, drifting = rows.values()
    drift = drifting[0]
    assert drift["id"] == "drift" and drift["recoverable_ns"] == pytest.approx(3e6 * 10 / 2, rel=0.1)
    assert ("[late-node]" in drift["evidence"]) == (ranks > 1)  # the one beside whom it is late
    # The first step has 3 ms already, which no growth since then explains.
    others = sum(row["recoverable_ns"] for row in drifting[1:])
    assert others < sum(row["recoverable_ns"] for row in healthy) + 3.1e6


def test_a_step_that_is_asked_for_is_judged_alone(tmp_path):
    """`--index` looks at one step: what the run has beside is a note, not a finding of that step."""
    profile = simulated(tmp_path, "spike:at=5,ms=60")
    result = profile.diagnose(index=3)
    assert not [row for row in result.rows["id"].to_list() if row in OF_THE_RUN]
    (text,) = [str(n) for n in result.notes if n.code == "run-beyond-the-step"]
    assert "1 step of 11 is a spike, 60" in text and "(5.45 ms a step)" in text


@pytest.mark.parametrize("name", ["startup_weights_2.7B.sqlite"])
def test_weights_that_are_uploaded_are_start_up(shared, name):
    result = api.open(shared / "judged" / name).diagnose()
    notes = [str(n) for n in result.notes if n.code == "capture-starts-up"]
    assert len(notes) == 1 and "of this capture is start-up" in notes[0]
    assert not {"data-stall", "allocator-churn", "exposed-copies"} & set(result.rows["id"].to_list())


def test_kinds_of_the_issue():
    """One step of twelve 60 ms late is a spike; steps of a plain loop that saves every third are of two kinds."""
    lengths = np.array([10.0] * 5 + [70.0] + [10.0] * 5) * MS
    assert kinds_of(lengths, np.arange(1, 12)).spike.tolist() == [k == 5 for k in range(11)]
    saving = np.array([57.0, 57, 2400] * 4) * MS
    assert [(k.name, k.every) for k in kinds_of(saving, np.arange(12)).kinds] == [("usual", None), ("longer", 3)]


def test_start_up_before_the_steps_is_said_and_is_no_finding():
    """Memory for 100 ms, then six steps of 10 ms."""
    ops, calls, ranges = [], [call(0, 100 * MS, 1, "cudaMalloc")], []
    for k in range(6):
        at = (100 + 10 * k) * MS
        calls.append(call(at + 1000, at + 6000, k + 2))
        ops.append(op(at + 10_000, at + 10 * MS - 1000, call=k + 2))
        ranges.append(nvtx(at, at + 10 * MS, f"step {k}"))
    result = api.analyse(make(ops=ops, calls=calls, ranges=ranges), "diagnose")
    assert result.rows.height == 0
    (text,) = [str(note) for note in result.notes if note.code == "start-up-before-steps"]
    assert "takes 100 ms, 62 % of the capture and as long as 10 steps (allocating memory 100 ms)" in text


@pytest.mark.parametrize(("lengths", "chosen"), [((10, 9, 14), 1), ((12, 9, 11), 2), ((9, 10, 11), 1), ((20, 9), 0)])
def test_a_cut_step_is_evidence_of_nothing(lengths, chosen):
    """The first step has no predecessor: where it is the median, the whole step of the nearest length is looked at.

    Of two steps one alone is whole, and nothing says whether it is usual: the longer one is looked at.
    """
    ops, calls, ranges, at = [], [], [], 0
    for k, ms in enumerate(lengths):
        calls.append(call(at + 1000, at + 6000, k + 2))
        ops.append(op(at + 10_000, at + ms * MS - 1000, call=k + 2))
        ranges.append(nvtx(at, at + ms * MS, f"step {k}"))
        at += ms * MS
    profile = make(ops=ops, calls=calls, ranges=ranges)
    for question in ("breakdown", "diagnose", "idle", "critical-path"):
        assert {w["index"] for w in api.analyse(profile, question).window} == {chosen}, question

"""Runs of 30 simulated steps with one fault of the run, or none: what is found is what was planted, no more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from pairs import scenario
from stepscope import api
from stepscope.derive.run.job import Run, run_of
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

STEPS = 30
SEEDS = range(5)


def found(folder: Path, seed: int, *faults: str, **more: object) -> Run:
    """The run of a small job, as its trace shows it."""
    job = engine.run(scenario(seed, steps=STEPS, faults=faults, **more))
    write_nsys.write(assemble.trace(job), 0, folder / "run.sqlite")
    return run_of(api.open(folder / "run.sqlite", cache=False))


def spikes(run: Run) -> list[str]:
    assert run.kinds is not None
    return [text for text, spike in zip(run.label, run.kinds.spike, strict=True) if spike]


def kinds(run: Run) -> list[tuple[int, int | None]]:
    """Count and period of the kinds beside the usual one."""
    assert run.kinds is not None
    return [(len(k.steps), k.every) for k in run.kinds.kinds[1:]]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_run_has_no_spike_kind_or_drift(tmp_path, seed):
    run = found(tmp_path, seed, jitter=Random(seed).choice([0.0, 0.02, 0.1]))
    assert run.kinds is not None
    assert (spikes(run), kinds(run), run.kinds.drift) == ([], [], None)
    assert not any(len(r.between) for r in run.ranks)


@pytest.mark.parametrize("seed", SEEDS)
def test_spikes_are_found_with_what_they_cost(tmp_path, seed):
    random = Random(seed)
    at = sorted(random.sample(range(1, STEPS), random.randint(1, 4)))
    ms = random.uniform(3, 60)
    run = found(tmp_path, seed, f"spike:at={'+'.join(map(str, at))},ms={ms}", dp=random.choice([1, 2]))
    assert spikes(run) == [f"step {k}" for k in at]
    assert kinds(run) == []
    assert run.kinds is not None
    assert run.kinds.excess[run.kinds.spike] == pytest.approx(ms * 1e6, rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", ["checkpoint:ms=40", "evaluation:passes=3"])
def test_what_recurs_within_steps_is_a_kind(tmp_path, seed, fault):
    every = Random(seed).randint(2, 9)
    run = found(tmp_path, seed, f"{fault},every={every}")
    late = [k for k in range(1, STEPS) if k % every == 0]
    assert run.kinds is not None
    assert spikes(run) == []
    assert kinds(run) == [(len(late), every)]
    assert [run.label[k] for k in run.kinds.kinds[1].steps] == [f"step {k}" for k in late]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", ["checkpoint:ms=40", "evaluation:passes=3"])
def test_what_recurs_between_steps_is_no_part_of_them(tmp_path, seed, fault):
    every = Random(seed).randint(3, 9)
    run = found(tmp_path, seed, f"{fault},every={every},where=between")
    (rank,) = run.ranks
    assert (spikes(run), kinds(run)) == ([], [])
    late = [k for k in range(1, STEPS) if (k - 1) % every == every - 1]
    assert np.flatnonzero(rank.between_ns).tolist() == late
    name = fault.partition(":")[0]
    row = next(r for r in api.analyse(rank.data.profile, "run").rows.to_dicts() if r["part"] == "between steps")
    assert row["made_of"].startswith(f"{name}: ")
    assert (row["n"], row["every"]) == (len(late), every)


@pytest.mark.parametrize("seed", SEEDS)
def test_drift_is_found_and_is_no_spike(tmp_path, seed):
    us = Random(seed).uniform(60, 400)
    run = found(tmp_path, seed, f"drift:us={us}")
    assert run.kinds is not None and run.kinds.drift is not None
    assert run.kinds.drift.slope_ns == pytest.approx(us * 1000, rel=0.1)
    assert (spikes(run), kinds(run)) == ([], [])

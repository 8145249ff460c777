"""Simulated pairs of runs, with and without a change: how often is a difference claimed?

A job is small (one layer, one micro-batch), 21 steps long: 20 that end where the next one begins. Its change is one
rank's kernels being slower, so that the step is about 3 % longer; the truth says by how much.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import stepscope
from stepscope.compare.measuring import Given
from stepscope.compare.side import Side
from stepscope.compare.steps import StepSpec
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine
from stepscope.simulate.truth import step_times

STEPS = 21
#: Makes the step of the small job 3 % longer.
SLOWER = "straggler:rank=0,factor=1.0355"


def scenario(seed: int, changed: bool = False, **more: object) -> Scenario:
    small = {"schedule": "ddp", "pp": 1, "ep": 1, "dp": 1, "layers": 1, "micro_batches": 1, "scale": 0.2}
    faults = (SLOWER,) if changed else ()
    return Scenario(**{**small, "steps": STEPS, "seed": seed, "faults": faults, **more})  # type: ignore[arg-type]


def write(what: Scenario, path: Path) -> list[int]:
    """Simulate, write one nsys file, and return the true step times."""
    done = engine.run(what)
    write_nsys.write(assemble.trace(done), 0, path)
    return step_times(done)


def side(path: Path) -> Side:
    profile = stepscope.open(path, cache=False)
    return Given([profile]).side(StepSpec())


def true_change(base: list[list[int]], new: list[list[int]]) -> float:
    """Relative change of the median step; the first one is not a whole one."""
    a, b = (float(np.median(np.concatenate([t[1:] for t in side]))) for side in (base, new))
    return b / a - 1

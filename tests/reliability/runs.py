"""Random runs of 30 steps with one fault of the run or none: is it named, with its period and cost, and nothing else?

python tests/reliability/runs.py [quick|full] [FIRST SEED [--save]]

Hosts are late at random, with a long tail. At least 98 % of the faults must be named, and at most 1 % of healthy runs
accused.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from pairs import scenario
from stepscope import api
from stepscope.simulate.nsys import write as write_nsys
from stepscope.simulate.programs import assemble
from stepscope.simulate.programs import execute as engine

STEPS, SAMPLES = 30, 29
COUNT = {"quick": 40, "full": 500}
OF_THE_RUN = ("checkpoint", "drift", "epoch-end", "evaluation", "spikes", "step-kinds", "warm-up")
NAMED, ACCUSED = 0.98, 0.01
#: Of what a fault costs per step, how far the promise may be off.
CLOSE = 0.25


@dataclass(frozen=True)
class Planted:
    """A run: its faults, what they must be found as (None: nothing), and the cost per step, ms, where it is known."""

    faults: tuple[str, ...]
    found: str | None
    costs_ms: float | None = None


def planted(random: Random) -> Planted:
    """A step takes about 1.7 ms; what is planted costs 4 % of the mean step or more."""
    noise = (f"noise:us={random.choice([5, 20, 60])}",)
    what = random.choice(["none", "none", "spikes", "period", "checkpoint", "evaluation", "penalty", "drift"])
    every = random.randint(3, 9)
    where = random.choice(["in", "between"])
    if what == "spikes":
        at = sorted(random.sample(range(1, STEPS), random.randint(1, 4)))
        ms = random.uniform(3, 60)
        return Planted((*noise, f"spike:at={'+'.join(map(str, at))},ms={ms:.2f}"), "spikes", ms * len(at) / SAMPLES)
    if what == "period":
        ms = random.uniform(3, 60)
        at = list(range(every, STEPS, every))
        return Planted((*noise, f"spike:at={'+'.join(map(str, at))},ms={ms:.2f}"), "spikes", ms / every)
    if what == "checkpoint":
        ms = random.uniform(3, 200)
        return Planted((*noise, f"checkpoint:every={every},ms={ms:.2f},where={where}"), "checkpoint", ms / every)
    if what == "evaluation":
        passes = random.randint(2, 8)
        return Planted((*noise, f"evaluation:every={every},passes={passes},where={where}"), "evaluation")
    if what == "penalty":
        return Planted((*noise, f"penalty:every={every},passes={random.randint(1, 3)}"), "step-kinds")
    if what == "drift":
        us = random.uniform(30, 200)
        return Planted((*noise, f"drift:us={us:.0f}"), "drift", us / 1000 * (SAMPLES - 1) / 2)
    return Planted(noise, None)


def said(seed: int, given: Planted) -> list[tuple[str, float, str]]:
    """Findings of the run: id, ms per step, title."""
    ranks = 2 if seed % 4 == 0 else 1
    job = engine.run(scenario(seed, steps=STEPS, faults=given.faults, jitter=0.02, dp=ranks))
    with tempfile.TemporaryDirectory() as folder:
        for node in range(1):
            write_nsys.write(assemble.trace(job), node, Path(folder) / f"{node}.sqlite")
        result = api.open(folder, cache=False).diagnose()
    rows = result.rows.select("id", "recoverable_ns", "title").iter_rows()
    return [(ident, ns / 1e6, title) for ident, ns, title in rows if ident in OF_THE_RUN]


def wrong(given: Planted, told: list[tuple[str, float, str]]) -> str | None:
    """What is wrong with what was said; None where nothing is."""
    if given.found is None:
        return f"accused: {told}" if told else None
    if not told or told[0][0] != given.found:
        return f"not named: {told}"
    off = given.costs_ms is not None and abs(told[0][1] / given.costs_ms - 1) > CLOSE
    return f"{told[0][1]:.2f} ms, not {given.costs_ms:.2f}" if off else None


def main(scale: str = "full", first: str = "0", save: str = "") -> int:
    count, tried, bad, began = COUNT[scale], Counter[str](), Counter[str](), time.time()
    for seed in range(int(first), int(first) + count):
        given = planted(Random(seed))
        kind = "faults" if given.found else "healthy"
        tried[kind] += 1
        if (what := wrong(given, said(seed, given))) is not None:
            bad[kind] += 1
            print(f"  {seed}: {' '.join(given.faults)}: {what}", flush=True)
    named, accused = tried["faults"] - bad["faults"], bad["healthy"]
    print(f"{named} of {tried['faults']} faults named, {accused} of {tried['healthy']} healthy runs accused", end="")
    print(f", {time.time() - began:.0f} s", flush=True)
    if save == "--save":
        result = {"suite": "runs", "runs": count, "steps": STEPS, "first_seed": int(first), "faults": tried["faults"]}
        result |= {"named": named, "healthy": tried["healthy"], "accused": accused}
        (Path(__file__).parent / "results" / "runs.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(named < NAMED * tried["faults"] or accused > ACCUSED * tried["healthy"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

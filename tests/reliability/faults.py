"""Faults across ranks on every schedule, at several strengths; and many healthy jobs, which must have no finding.

python tests/reliability/faults.py [quick|full] [faults|healthy]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from faultcases import MESHES, WITHIN, diagnosed, scenario
from stepscope.model.ranks import ranks_text
from stepscope.simulate.job.scenario import Scenario

#: fault -> what it must be found as
FAULTS = {
    **{f"straggler:rank={r},factor={f}": "straggler" for r, f in ((0, 1.1), (1, 1.3), (3, 1.5), (2, 2.0))},
    **{f"imbalance:rank={r},factor={f}": "expert-imbalance" for r, f in ((0, 1.3), (1, 2.0), (3, 3.0))},
    **{f"late-node:node={n},delay_us={d}": "late-node" for n, d in ((1, 8000), (0, 12000), (1, 25000))},
    "serialized:how=wait": "serialized-communication",
    "serialized:how=stream": "serialized-communication",
}
#: Links that have like ones beside them.
LINKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("1f1b", {"pp": 4, "nodes": 4}),
    ("zero-bubble", {"pp": 4, "nodes": 4}),
    ("interleaved", {"pp": 4, "layers": 8, "micro_batches": 8, "nodes": 4}),
    ("dualpipev", {"pp": 4, "layers": 8, "micro_batches": 8, "nodes": 4}),
)
#: Below this share of the step a fault need not come first.
MATERIAL = 0.03
#: How many of the planted faults are tried (each fifth, so that every fault and every schedule is), and healthy seeds.
EACH = {"quick": 5, "full": 1}
SEEDS = {"quick": 1, "full": 5}
HEALTHY: tuple[dict[str, Any], ...] = (
    {"schedule": "1f1b", "pp": 2, "ep": 2, "layers": 8, "micro_batches": 8},
    {"schedule": "1f1b", "pp": 4, "ep": 1, "dp": 1, "layers": 8, "micro_batches": 8},
    {"schedule": "1f1b", "pp": 2, "ep": 1, "tp": 2, "layers": 4, "micro_batches": 8},
    {"schedule": "interleaved", "pp": 2, "ep": 2, "layers": 8, "micro_batches": 8},
    {"schedule": "zero-bubble", "pp": 2, "ep": 2, "layers": 8, "micro_batches": 8},
    {"schedule": "dualpipev", "pp": 2, "ep": 2, "layers": 8, "micro_batches": 8},
    {"schedule": "fsdp", "pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2},
    {"schedule": "fsdp", "pp": 1, "dp": 4, "ep": 1, "layers": 8, "micro_batches": 2},
    {"schedule": "ddp", "pp": 1, "dp": 2, "ep": 2, "layers": 4, "micro_batches": 2},
    {"schedule": "ddp", "pp": 1, "dp": 2, "ep": 1, "cp": 2, "layers": 4, "micro_batches": 2},
)


def faulty() -> Iterator[tuple[str, Scenario, str]]:
    for (fault, finding), schedule in product(FAULTS.items(), MESHES):
        yield f"{schedule} {fault}", scenario(schedule, fault), finding
    for (schedule, more), factor in product(LINKS, (3, 5, 10)):
        yield (
            f"{schedule} slow-link {factor}",
            scenario(schedule, f"slow-link:node=1,factor={factor}", **more),
            "slow-link",
        )


def verdict(given: Scenario, finding: str) -> str | None:
    """None where the fault comes first, on its ranks, within 10 % of what it costs; or costs too little to tell."""
    told = diagnosed(given)
    first = told.first
    if told.truth_ns < MATERIAL * told.result.summary["step_ns"]:
        return None
    if first.get("id") != finding or first["ranks"] != ranks_text(told.ranks):
        return str(told)
    return None if abs(first["recoverable_ns"] - told.truth_ns) <= WITHIN * told.truth_ns else str(told)


def main(scale: str = "full", which: str = "all") -> int:
    wrong, cases, began = 0, 0, time.time()
    if which in ("faults", "all"):
        for name, given, finding in islice(faulty(), 0, None, EACH[scale]):
            said = verdict(given, finding)
            cases, wrong = cases + 1, wrong + (said is not None)
            if said is not None:
                print(f"{name}: {said}", flush=True)
    if which in ("healthy", "all"):
        for shape, seed in product(HEALTHY, range(SEEDS[scale])):
            told = diagnosed(Scenario(**shape, seed=seed, steps=2))
            cases, wrong = cases + 1, wrong + (told.result.rows.height > 0)
            if told.result.rows.height:
                print(f"healthy {shape} seed {seed}: {told}", flush=True)
    print(f"{cases} cases, {wrong} wrong, {time.time() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(*given) if not given or given[0] in EACH else main("full", *given))

"""Faults of the host on every schedule, at every strength, on one rank and on all: each is the first finding.

python tests/reliability/hosts.py [quick|full|SCHEDULE…]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "findings"))

from test_faults_host import CASES, wrong

from faultcases import MESHES, diagnosed, scenario

#: Below this share of the step a fault need not come first.
MATERIAL = 0.03
#: The tests have 1f1b, fsdp and dualpipev, on another seed.
SCHEDULES = {"quick": ["zero-bubble"], "full": list(MESHES)}


def main(schedules: list[str]) -> int:
    bad, weak, n, began = 0, 0, 0, time.time()
    for schedule in schedules:
        for fault, finding, how in CASES:
            told = diagnosed(scenario(schedule, f"{fault}:{how}", seed=17))
            n += 1
            if told.truth_ns < MATERIAL * told.result.summary["step_ns"]:
                weak += 1
            elif said := wrong(told, finding, schedule):
                bad += 1
                print(f"{schedule} {fault}:{how}: {said}", flush=True)
    print(f"{n} cases, {bad} wrong, {weak} too weak to count, {time.time() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    given = sys.argv[1:] or ["full"]
    sys.exit(main(SCHEDULES.get(given[0], given)))

"""`serve` and `mcp` under hours' worth of requests in minutes: memory and descriptors stay, and nothing is wrong.

python tests/reliability/soak.py [quick|full|serve|mcp]

Requests are polite, strange, oversized, half sent, dropped, slow and cancelled. A full run writes its figures to
results/soak.json, for the page on reliability.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak_mcp import soak_mcp
from soak_serve import soak_serve
from soaked import Soaked
from stepscope.agent.kept import MOST_RECIPES
from stepscope.simulate.job.scenario import Scenario
from stepscope.simulate.run import simulate_to

RESULTS = Path(__file__).parent / "results" / "soak.json"
#: Requests to each, after so many to warm up: the agent's server keeps recipes of so many answers, by design.
FULL = {"serve": (20_000, 2_000), "mcp": (5_000, MOST_RECIPES + 1_000)}
QUICK = {"serve": (2_000, 500), "mcp": (500, 300)}
#: What memory may grow by, in MB, while allocators find their size.
_ALLOWED_MB = 30


def main(scale: str) -> int:
    counts, commit = QUICK if scale == "quick" else FULL, _commit()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STEPSCOPE_CACHE_DIR"] = str(Path(folder) / "cache")
        job, root = Path(folder) / "job", Path(folder) / "root"
        root.mkdir()
        simulate_to(Scenario(schedule="1f1b", pp=2, ep=1, layers=4, micro_batches=4, steps=4), job, ("nsys",))
        (trace,) = job.glob("*.sqlite")
        soaked: list[Soaked] = []
        if scale != "mcp":
            requests, warm = counts["serve"]
            soaked.append(soak_serve(trace, requests, warm=warm, callers=40))
        if scale != "serve":
            requests, warm = counts["mcp"]
            soaked.append(soak_mcp(trace, root, requests, warm=warm))
    wrong = False
    for each in soaked:
        print(json.dumps(each.data()), flush=True)
        for said in [*each.errors[:10], *each.leaks(_ALLOWED_MB)]:
            wrong = True
            print(f"{each.served}: {said}", flush=True)
    if scale == "full":
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps([{**each.data(), "commit": commit} for each in soaked], indent=1) + "\n")
    return 1 if wrong else 0


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(words, cwd=RESULTS.parents[1], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "full"))

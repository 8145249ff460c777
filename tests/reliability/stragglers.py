"""The planted straggler is named, and nobody else, in every one of many seeded jobs of 8 to 512 ranks.

python tests/reliability/stragglers.py [quick|full|FIRST LAST]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jobs import case, verdict

#: The first seed, and the one after the last. The tests have the first few; 100 ends with a job of 512 ranks.
SEEDS = {"quick": (20, 40), "full": (0, 220)}


def main(first: int, last: int) -> int:
    wrong, began = 0, time.time()
    for seed in range(first, last):
        given = case(seed)
        said = verdict(given)
        wrong += said is not None
        if said is not None:
            print(f"seed {seed}: {said}", flush=True)
        elif seed % 20 == 19:
            print(f"{seed + 1 - first} cases, {wrong} wrong, {time.time() - began:.0f} s", flush=True)
    print(f"{last - first} cases, {wrong} wrong, {time.time() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:] or ["full"]
    sys.exit(main(*SEEDS[given[0]]) if given[0] in SEEDS else main(int(given[0]), int(given[1])))

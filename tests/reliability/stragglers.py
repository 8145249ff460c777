"""`make reliability`: the planted straggler is named, and nobody else, in every one of many seeded jobs.

python tests/reliability/stragglers.py [FIRST] [LAST]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jobs import case, verdict


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
    numbers = [int(a) for a in sys.argv[1:]]
    sys.exit(main(*(numbers if len(numbers) == 2 else (0, *(numbers or [220])))))

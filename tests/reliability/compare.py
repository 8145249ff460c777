"""Pairs of runs that share nothing, with no change and with one of 3 %: how often `compare` claims a difference.

python tests/reliability/compare.py [quick|full|PAIRS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pairs import scenario, true_change, write
from stepscope import api

#: Jobs without a change, in turn.
KINDS: tuple[dict[str, object], ...] = (
    {},
    {"schedule": "fsdp", "dp": 2},
    {"schedule": "1f1b", "pp": 2, "layers": 2, "micro_batches": 2},
    {"schedule": "dualpipev", "pp": 1, "ep": 2, "layers": 2, "micro_batches": 2},
)
PAIRS = {"quick": 20, "full": 200}


def main(pairs: int) -> int:
    began = time.time()
    same: Counter[str] = Counter()
    slower: Counter[str] = Counter()
    truth: tuple[list[list[int]], list[list[int]]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.sqlite" for name in ("a", "b", "c")]
        for i in range(pairs):
            kind = KINDS[i % len(KINDS)]
            _fresh(files)
            write(scenario(10_000 + 2 * i, **kind), files[0])  # type: ignore[arg-type]
            write(scenario(10_001 + 2 * i, **kind), files[1])  # type: ignore[arg-type]
            same[_verdict(files[0], files[1])] += 1
            _fresh(files)
            truth[0].append(write(scenario(50_000 + 2 * i), files[0]))
            truth[1].append(write(scenario(50_001 + 2 * i, True), files[2]))
            slower[_verdict(files[0], files[2])] += 1
            if i % 20 == 19:
                print(f"{i + 1} pairs each, {time.time() - began:.0f} s: {dict(same)}, {dict(slower)}", flush=True)
    claimed, found = same["faster"] + same["slower"], slower["slower"]
    print(f"no change: a difference claimed in {claimed} of {pairs}")
    print(f"{true_change(*truth):.2%}: found in {found} of {pairs}")
    return 0 if claimed <= 0.05 * pairs and found >= 0.9 * pairs else 1


def _fresh(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _verdict(base: Path, new: Path) -> str:
    return str(api.compare(base, new, cache=False).summary["verdict"])


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else "full"
    sys.exit(main(PAIRS[given] if given in PAIRS else int(given)))

"""Damaged inputs by the thousand: `make fuzz ARGS="--count 2000 --seed 1"`. Prints how questions about them ended.

Every mutant is a good input (`good_inputs`) with one to three defects (`mutate_tables`, `mutate_texts`,
`mutate_cache`); all questions are asked of it (`ask_mutant`). Only answers, BadInput and CannotAnswer may come out, and
no figure that cannot be. Exit status 1 where something else did.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from one_mutant import FORMATS, Factory  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged inputs by the thousand, and how questions about them end.")
    parser.add_argument("--count", type=int, default=200, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; each has the next")
    parser.add_argument("--format", action="append", choices=FORMATS, help="only these formats")
    parser.add_argument("--more", type=Path, metavar="DIR", help="mutate the small traces below this folder, too")
    parser.add_argument("--show", type=int, default=40, help="kinds of failure to list")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stepscope-mutants-"))
    os.environ["STEPSCOPE_CACHE_DIR"] = str(folder / "cache")
    ended: Counter[tuple[str, str]] = Counter()
    failures: dict[str, list[int]] = {}
    questions: Counter[str] = Counter()
    began = time.monotonic()
    try:
        factory = Factory(folder, given.format or FORMATS, given.more)
        for seed in range(given.seed, given.seed + given.count):
            kind, said, outcome = factory.run(random.Random(seed))
            ended[kind, outcome.kind] += 1
            questions.update(answered=outcome.answered, cannot=outcome.cannot, refused=outcome.refused)
            for failure in outcome.failures:
                question, _, what = failure.partition(": ")
                if what not in failures:
                    print(f"seed {seed} {question}, {kind} {said}\n     {what}", flush=True)
                failures.setdefault(what, []).append(seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for kind in FORMATS:
        print(f"{kind:9}", *(f"{what} {ended[kind, what]:5}" for what in ("answered", "refused", "failed")))
    print(f"{sum(ended.values())} mutants in {time.monotonic() - began:.0f} s; questions:", dict(questions))
    for failure, seen in sorted(failures.items(), key=lambda item: -len(item[1]))[: given.show]:
        print(f"{len(seen):4} × {failure} (seeds {', '.join(map(str, dict.fromkeys(seen[:8])))})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""`stragglers` and `diagnose` name the same ranks and links: on every fault of every schedule, and on real traces.

python tests/reliability/agreement.py [quick|full]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

import reference_captures
from jobs import written
from samenames import disagreements, real, simulated
from stepscope import api

TRACES = Path(__file__).parents[3] / "shared" / "traces"
#: Of the simulated jobs, every so many.
EVERY = {"quick": 17, "full": 1}


def cases(every: int) -> Iterator[tuple[str, list[str]]]:
    """Every case, and what differs in it."""
    for name, job in list(simulated())[::every]:
        with written(job) as (_, folder):
            yield name, disagreements(api.open(folder, cache=False))
    with TemporaryDirectory() as folder:
        for name in list(reference_captures.planted())[::every]:
            for backend in reference_captures.BACKENDS:
                capture = reference_captures.unpack(name, backend, Path(folder))
                yield f"{name} {backend}", disagreements(api.open(capture, cache=False))
    for name, paths in list(real(TRACES))[::every] if TRACES.is_dir() else ():
        yield name, disagreements(api.open(*paths, cache=False))


def main(every: int) -> int:
    wrong, count, began = 0, 0, time.time()
    for name, differ in cases(every):
        count, wrong = count + 1, wrong + bool(differ)
        for text in differ:
            print(f"{name}: {text}", flush=True)
    print(f"{count} cases, {wrong} wrong, {time.time() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(EVERY[sys.argv[1] if len(sys.argv) > 1 else "full"]))

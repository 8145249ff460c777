"""What our hooks cost a step: the same program with and without them, run in turns, no profiler anywhere.

    make hook-cost [ARGS="--runs 5 --steps 60 --batch 4 --python PYTHON"]

A run counts as its median step; runs are compared as `compare` compares them. Hooks never begin to record: their
warm-up outlasts the program. A small batch leaves the GPU waiting for the host; a large one keeps it busy. The last
lines say what the hooks cost while torch.profiler records, as a manifest has it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from stepscope.statistics.changes import RUNS, interval

HERE = Path(__file__).parent
SITE = HERE.parents[1] / "src" / "stepscope" / "hooks" / "site"
_NEVER = "1000000000"
WAYS = {
    "without": {},
    "hooks": {"BACKEND": "none", "WARMUP": _NEVER},
    "hooks, ranges of modules": {"BACKEND": "none", "WARMUP": _NEVER, "RANGES": "modules=3"},
}
RECORDING = {"BACKEND": "torch", "WARMUP": "12", "STEPS": "5"}


def run(given: argparse.Namespace, settings: dict[str, str], folder: Path) -> list[int]:
    """Lengths of the steps of one run, ns."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE_CAPTURE") and k != "PYTHONPATH"}
    hooks = {"PYTHONPATH": str(SITE), "STEPSCOPE_CAPTURE_HOOKS": "1", "STEPSCOPE_CAPTURE_OUT": str(folder)}
    ours = {**hooks, **{f"STEPSCOPE_CAPTURE_{k}": v for k, v in settings.items()}} if settings else {}
    program = [given.python, str(HERE / "programs" / "timed.py"), str(given.steps), str(given.batch)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env={**clean, **ours}, cwd=folder)
    if "no hooks" in done.stderr:
        raise SystemExit(done.stderr)
    times: list[int] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    medians: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as work:
        for _ in range(given.runs):
            for way, settings in WAYS.items():
                medians[way].append(float(np.median(run(given, settings, Path(work)))))
        run(given, RECORDING, Path(work))
        lines = (Path(work) / "steps" / "rank0.jsonl").read_text().splitlines()
        (cost,) = (said["hooks"] for line in lines if "hooks" in (said := json.loads(line)))
    base = np.array(medians["without"])
    print(f"{given.runs} runs each, {given.steps} steps a run, batches of {given.batch}; median step of a run, µs")
    for way, found in medians.items():
        new = np.array(found)
        print(f"{way}: {np.median(new) / 1e3:.1f} ({', '.join(f'{ns / 1e3:.1f}' for ns in found)})")
        if way != "without" and (ends := interval(base, new, RUNS)) is not None:
            low, high = (100 * end / np.median(base) for end in ends)
            verdict = "within noise" if low <= 0 <= high else "NOT within noise"
            print(f"  {low:+.2f} % to {high:+.2f} % (95 %): {verdict}")
    print(f"hooks' own time, as the manifest has it: {cost['plain_ns'] / 1e3:.1f} µs a step before recording, ", end="")
    print(f"{cost['profiled_ns'] / 1e3:.1f} µs while torch.profiler records")


if __name__ == "__main__":
    main()

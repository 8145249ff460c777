"""What programs take without a profiler: all faults of a program in turn in one process, several times.

    python truth.py OUT.json [--only PROGRAM[:FAULT] ...] [--skip PROGRAM:FAULT ...] [--times 2] [--until SECONDS]

Appends to OUT.json after each: {"PROGRAM:FAULT": [{"mean_ms": …, "host_ms": […], "start_ms": …}, …]}.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from common import DEVICE, Steps, turn

PROGRAMS = (
    "dlrm", "gan", "moe", "lightning_policy", "gpt", "cnn", "unet", "lightning_cnn", "hf_trainer", "accelerated",
    "compiled",
)  # fmt: skip


def steps_of(row: str) -> int:
    """As many of a fault of the run (C) as are captured; of one in every step, enough for a mean."""
    return 12 if row.startswith("C") else 20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--until", type=float, default=1e9)
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    turn()
    began = time.perf_counter()
    found: dict[str, list[dict[str, object]]] = {}
    for program in PROGRAMS:
        faults: dict[str, str] = {"none": "twin"}
        wanted = [w.partition(":") for w in given.only]
        if wanted and not any(p == program for p, _, _ in wanted):
            continue
        try:
            module = importlib.import_module(program)
        except Exception:
            traceback.print_exc()
            continue
        faults |= module.FAULTS
        chosen = [f for f in faults if not wanted or any(p == program and q in ("", f) for p, _, q in wanted)]
        chosen = [f for f in chosen if f"{program}:{f}" not in given.skip]
        for _ in range(given.times):
            for fault in chosen:
                if time.perf_counter() - began > given.until:
                    continue
                row = faults[fault]
                steps = Steps(given.steps or steps_of(row), timed=True, block=0 if row.startswith("C") else 10)
                at = time.perf_counter()
                try:
                    module.run(fault, steps)
                except Exception as error:
                    print(f"{program} {fault}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    traceback.print_exc(limit=-3)
                    continue
                finally:
                    gc.collect()
                    if DEVICE.type == "cuda":
                        torch.cuda.empty_cache()
                times = steps.times()
                if DEVICE.type == "cuda":
                    times["peak_mb"] = torch.cuda.max_memory_allocated() >> 20
                    torch.cuda.reset_peak_memory_stats()
                found.setdefault(f"{program}:{fault}", []).append(times)
                took = time.perf_counter() - at
                print(f"[{at - began:5.0f} s] {program} {fault}: {times['mean_ms']} ms, {took:.1f} s", flush=True)
                given.out.write_text(json.dumps(found, indent=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())

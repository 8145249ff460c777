"""What good kernels reach on this GPU: the reference costs of `derive/work` (reference.csv), measured with PyTorch.

    python bench/good_times.py --out FILE.json [--seconds 120]      # on a machine with the GPU
    python bench/good_times.py --table FILE.json                    # the table, to be committed

Each row is one op: what it is, on which numbers, its sizes, the FLOPs and bytes that it needs, and the shortest of
some measurements. Ops are captured into a CUDA graph and replayed back to back, so that the host's time is none of
theirs. The file is written after every part; on a machine without a GPU a dry run takes tiny sizes.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from good_ops import GPU, PARTS


def measure(out: Path, seconds: float) -> None:
    """Forward and backward run on the stream that graphs are captured on: autograd stays on a forward's stream."""
    gc.freeze()  # every graph collects garbage first
    if GPU:
        torch.cuda.set_stream(torch.cuda.Stream())
    deadline = time.monotonic() + seconds
    name = torch.cuda.get_device_name() if GPU else "dry run"
    found: dict[str, Any] = {"gpu": name, "torch": torch.__version__, "rows": [], "missed": []}
    for part in PARTS:
        begun = time.monotonic()
        for one in part():
            if time.monotonic() > deadline:
                found["missed"].append(part.__name__)
                break
            try:
                found["rows"].append(one())
            except Exception as error:  # one op that fails must not cost the others
                found["missed"].append(f"{part.__name__}: {type(error).__name__}: {str(error)[:120]}")
            if GPU:
                torch.cuda.empty_cache()
        out.write_text(json.dumps(found), "utf-8")
        print(part.__name__, len(found["rows"]), f"{time.monotonic() - begun:.1f} s", flush=True)


def table(measured: Path) -> None:
    """A line per row: what it is, its sizes, and the rates that it reaches."""
    found = json.loads(measured.read_text("utf-8"))
    print(f"# {found['gpu']}, torch {found['torch']}: bench/good_times.py. TFLOP/s and GB/s of what the op needs.")
    print("op,precision,sizes,flops,bytes,us,tflops,gbps")
    for one in found["rows"]:
        sizes = " ".join(
            f"{k}={v}" for k, v in one.items() if k not in ("op", "precision", "flops", "bytes", "us") and v is not None
        )
        rates = f"{one['flops'] / one['us'] / 1e6:.1f},{one['bytes'] / one['us'] / 1e3:.0f}"
        print(f"{one['op']},{one['precision']},{sizes},{one['flops']:.4g},{one['bytes']:.4g},{one['us']:.2f},{rates}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    if asked.table:
        table(asked.table)
    elif asked.out:
        measure(asked.out, asked.seconds)
    else:
        parser.error("--out or --table")
    return 0


if __name__ == "__main__":
    sys.exit(main())

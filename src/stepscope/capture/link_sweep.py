"""Measures what collectives reach, message by message: torchrun starts this file on every rank of the job.

It imports torch and nothing of stepscope: the Python of the training environment may not have it. The first rank writes
a file per operation into the folder that it is given, with the columns of nccl-tests: size in bytes, elements, type,
mean time of a call over the ranks in microseconds, algorithm and bus bandwidth in 10^9 bytes a second.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: What nccl-tests calls the operations, and the factor of the bus bandwidth among n ranks.
OPERATIONS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
}
#: Of the comment that says where figures come from.
SAID_BY = "# stepscope capture nccl: "
_BYTES = 4  # of a float
#: A step of sizes; calls before the clock, and as many as fill its time, within bounds.
_FACTOR, _WARMUP, _LEAST, _MOST, _FILL_S = 4, 3, 5, 50, 0.5
_LIMIT = datetime.timedelta(minutes=5)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", choices=("nccl", "gloo"), required=True)
    parser.add_argument("--operations", required=True)
    parser.add_argument("--least", type=int, required=True)
    parser.add_argument("--most", type=int, required=True)
    asked = parser.parse_args(arguments)
    import torch
    import torch.distributed as dist

    on_gpu = asked.backend == "nccl"
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if on_gpu:
        if local >= torch.cuda.device_count():
            rank, there = os.environ.get("RANK", "0"), torch.cuda.device_count()
            raise SystemExit(f"rank {rank}: no GPU {local} here ({there} visible)")
        torch.cuda.set_device(local)
    dist.init_process_group(asked.backend, timeout=_LIMIT)
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    for name in asked.operations.split(","):
        lines = _measured(torch, dist, name, device, asked.least, asked.most)
        if dist.get_rank() == 0:
            text = "\n".join([_head(torch, dist, asked.backend, name), *lines]) + "\n"
            (asked.folder / f"{name}_perf.txt").write_text(text, "utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _head(torch: Any, dist: Any, backend: str, name: str) -> str:
    """Where the figures come from, and what the columns are."""
    ranks, on_node = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = -(-ranks // on_node)
    if backend == "nccl":
        version = ".".join(map(str, torch.cuda.nccl.version()))
        where = f"NCCL {version} on {torch.cuda.get_device_name()}"
    else:
        where = "gloo on CPUs: not what NCCL reaches between GPUs"
    header = f"{SAID_BY}{where}, {ranks} ranks on {nodes} node{'s' if nodes > 1 else ''}, torch {torch.__version__}"
    settings = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("NCCL_") and len(v) < 80]
    set_to = [f"# {' '.join(settings)}"] if settings else []
    head = (
        "#       size         count      type      time     algbw     busbw\n"
        "#        (B)    (elements)                (us)    (GB/s)    (GB/s)"
    )
    return "\n".join([header, f"# {name}_perf", *set_to, head])


def _measured(torch: Any, dist: Any, name: str, device: Any, least: int, most: int) -> list[str]:
    """A row for each size of message."""
    ranks, factor = dist.get_world_size(), OPERATIONS[name]
    rows: list[str] = []
    size = least
    while size <= most:
        count = max(1, size // _BYTES // ranks) * ranks  # what is dealt out divides by the ranks
        call = _call(torch, dist, name, count, ranks, device)
        try:
            seconds = _timed(torch, dist, call, device)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            return [*rows, f"# stopped: {str(error).splitlines()[0]:.120}"]
        algbw = count * _BYTES / seconds / 1e9
        rows.append(
            f"{count * _BYTES:>12} {count:>13} {'float':>9} {1e6 * seconds:>9.2f} {algbw:>9.4g}"
            f" {algbw * factor(ranks):>9.4g}"
        )
        size *= _FACTOR
    return rows


def _call(torch: Any, dist: Any, name: str, count: int, ranks: int, device: Any) -> Callable[[], None]:
    """The operation on buffers of its own; `count` elements are what nccl-tests counts as its size."""
    whole = torch.zeros(count, device=device)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if name == "alltoall":
        received = torch.zeros(count, device=device)
        return lambda: dist.all_to_all_single(received, whole)
    part = torch.zeros(count // ranks, device=device)
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part)
    return lambda: dist.reduce_scatter_tensor(part, whole)


def _timed(torch: Any, dist: Any, call: Callable[[], None], device: Any) -> float:
    """Seconds of a call, mean over the ranks, as nccl-tests takes it."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def run(times: int) -> float:
        wait()
        dist.barrier()
        wait()
        began = time.perf_counter()
        for _ in range(times):
            call()
        wait()
        took = torch.tensor([(time.perf_counter() - began) / times], device=device, dtype=torch.float32)
        dist.all_reduce(took)
        return float(took[0]) / int(dist.get_world_size())

    # The estimate is the same on all ranks, and so is how often they call.
    once = run(_WARMUP)
    return run(max(_LEAST, min(_MOST, int(_FILL_S / max(once, 1e-9)))))


if __name__ == "__main__":
    main(sys.argv[1:])

"""Time and memory of `stepscope hang` on very many dumps, written here and deleted afterwards.

Every rank is in a group of 8 (tp), one of at most 64 (dp) and the default group of all, which every dump lists. One
rank makes no further call; all others wait for it in the default group.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stepscope.simulate.hang.pickled import Frame, _Writer, pickled

_TP, _DP = 8, 64
_STEP = 20
_ASK = """
import sys
from stepscope import api
if __name__ == "__main__":
    print(api.hang(sys.argv[1]).summary["statement"])
"""
_EPOCH_NS = 1_790_000_000_000_000_000
_KINDS = {"tp": ("all_reduce", 4 << 20), "dp": ("_reduce_scatter_base", 1 << 20), "default_pg": ("all_reduce", 1)}


def entries(stopped: bool, count: int) -> list[dict[str, Any]]:
    """Calls of a rank; the last, of the default group, is under way, and was not made by the rank that stopped."""
    site = {
        purpose: [Frame(name=f"f{n}", filename=f"{purpose}.py", line=10 * n) for n in range(12)] for purpose in _KINDS
    }
    seqs = dict.fromkeys(_KINDS, 0)
    made = []
    dumped = _EPOCH_NS + count * 10_000_000 + 600 * 10**9
    for n in range(count):
        place = (n - count) % _STEP
        purpose = "default_pg" if place == _STEP - 1 else "dp" if place % 5 == 4 else "tp"
        kind, elements = _KINDS[purpose]
        seqs[purpose] += 1
        done = n < count - 1
        when = _EPOCH_NS + n * 10_000_000
        made.append(
            {
                "frames": site[purpose],
                "record_id": n + 100_000,
                "pg_id": list(_KINDS).index(purpose),
                "process_group": (_name(purpose, 0), purpose),
                "collective_seq_id": seqs[purpose],
                "p2p_seq_id": 0,
                "op_id": seqs[purpose],
                "profiling_name": f"nccl:{kind}",
                "time_created_ns": when,
                "duration_ms": 1.5,
                "input_sizes": [[elements]],
                "input_dtypes": ["Float"],
                "output_sizes": [[elements]],
                "output_dtypes": ["Float"],
                "state": "completed" if done else "started",
                "time_discovered_started_ns": when + 5_000_000 if done else dumped,
                "time_discovered_completed_ns": when + 6_000_000 if done else None,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
    return made[:-1] if stopped else made


def _name(purpose: str, number: int) -> str:
    return "0" if purpose == "default_pg" else f"{purpose}{number:06d}"


def _members(purpose: str, rank: int, world: int) -> list[int]:
    if purpose == "default_pg":
        return list(range(world))
    if purpose == "tp":
        return list(range(rank // _TP * _TP, min(world, rank // _TP * _TP + _TP)))
    pod = rank // (_TP * _DP) * _TP * _DP
    return list(range(pod + rank % _TP, min(world, pod + _TP * _DP), _TP))


def _number(purpose: str, rank: int) -> int:
    return rank // _TP if purpose == "tp" else rank // (_TP * _DP) * _TP + rank % _TP


def _head(rank: int, world: int, everybody: str) -> dict[str, Any]:
    config = {}
    for purpose in _KINDS:
        ranks = everybody if purpose == "default_pg" else str(_members(purpose, rank, world))
        name = _name(purpose, _number(purpose, rank))
        config[name] = {"name": name, "desc": purpose, "ranks": ranks}
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.27.5"}


def _begun(head: dict[str, Any]) -> bytes:
    writer = _Writer()
    writer.out += b"}("
    for key, value in head.items():
        writer.text(key)
        writer.value(value)
    return bytes(writer.out)


def write(folder: Path, world: int, count: int, culprit: int) -> None:
    """A dump for each rank. Calls differ in the names of their groups alone, which are written once, in the head."""
    everybody = str(list(range(world)))
    tails = []
    for stopped in (False, True):
        head = _head(0, world, everybody)
        tails.append(pickled({**head, "entries": entries(stopped, count)})[len(_begun(head)) :])
    for rank in range(world):
        data = _begun(_head(rank, world, everybody)) + tails[rank == culprit]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--folder", default=None, help="where the dumps are written; they are deleted")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, in one process")
    given = parser.parse_args()
    culprit = min(417, given.ranks - 1)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        began = time.monotonic()
        write(Path(folder), given.ranks, given.calls, culprit)
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        took = time.monotonic() - began
        print(f"{given.ranks} dumps of {given.calls} calls, {size / 1e9:.2f} GB, written in {took:.0f} s")
        script = Path(folder) / "ask.py"
        script.write_text(_ASK)
        profiled = ["-m", "cProfile", "-s", "tottime"] if given.profile else []
        began = time.monotonic()
        done = subprocess.run([sys.executable, *profiled, script, folder], check=False, capture_output=True, text=True)
        wall = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(done.stdout[:6000] or done.stderr[-800:])
        print(f"{wall:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU", end=", ")
        print(f"at most {used.ru_maxrss / 1e6:.2f} GB in one process")


if __name__ == "__main__":
    main()

"""Make a job dumpable without edits, and collect dumps and stacks of its ranks while it hangs.

The flight recorder dumps when the watchdog times out, and when something is written to a rank's pipe. Both are switched
on by the environment, so that the job itself is not changed. Nothing is ever ended or restarted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.errors import BadInput
from stepscope.files import whole

#: The beginnings of names in the folder; the rank follows.
DUMP, PIPE, STACKS = "nccl_trace_rank_", "pipe_rank_", "stacks_rank_"
MANIFEST = "hang.json"
_TOOL_S = 30
_POLL_S = 0.2


def environment(folder: Path, *, buffer: int = 20_000, timing: bool = True) -> dict[str, str]:
    """What to set before the job starts. Names of old and new releases of torch stand side by side."""
    place = folder.absolute()
    return {
        "TORCH_FR_BUFFER_SIZE": str(buffer),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(buffer),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1" if timing else "0",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(place / DUMP),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(place / DUMP),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(place / PIPE),
    }


@dataclass
class Collected:
    """What was collected: by rank, when its dump was there; pids; ranks that gave no dump; stacks; other files."""

    dumped_ns: dict[int, int] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)
    stacks: list[int] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    #: what could not be had, and why
    lacking: list[str] = field(default_factory=list)


def collect(folder: Path, *, wait_s: float = 60.0, stacks: bool = True, proc: Path = Path("/proc")) -> Collected:
    """Ask every rank of this machine for its dump, take its stacks, note when. `folder` is that of `environment`."""
    if not folder.is_dir():
        raise BadInput(
            f"{folder}: no such folder", "start the job with what `capture hang --env -o DIR` prints, then name DIR"
        )
    done = Collected(pids=ranks_here(proc))
    pipes = {rank: path for path in folder.glob(f"{PIPE}*.pipe") if (rank := _rank(path, PIPE, ".pipe")) is not None}
    here = {rank: pipe for rank, pipe in pipes.items() if not done.pids or rank in done.pids}
    began = time.time_ns()
    asked = [rank for rank, pipe in sorted(here.items()) if _ask(pipe)]
    if stacks:
        _stacks(folder, done)
    _wait(folder, asked, began, wait_s, done)
    done.silent = sorted((set(here) | set(done.pids)) - set(done.dumped_ns))
    _tools(folder, done)
    _note(folder, done)
    return done


def ranks_here(proc: Path = Path("/proc")) -> dict[int, int]:
    """By rank, the process of this machine that torchrun or SLURM started as it: the first, not what it started."""
    ranks_here: dict[int, int] = {}
    for entry in sorted((p for p in proc.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)):
        try:
            parts = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # of somebody else, or gone
        env = dict(part.split(b"=", 1) for part in parts if b"=" in part)
        rank = env.get(b"RANK", b"")
        if rank.isdigit() and b"WORLD_SIZE" in env and b"TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in env:
            ranks_here.setdefault(int(rank), int(entry.name))
    return ranks_here


def _rank(path: Path, prefix: str, suffix: str) -> int | None:
    middle = path.name.removeprefix(prefix).removesuffix(suffix)
    return int(middle) if middle.isdigit() else None


def _ask(pipe: Path) -> bool:
    """Write to a rank's pipe; a rank that does not listen is not waited for."""
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(handle, b"1\n")
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _wait(folder: Path, asked: list[int], began: int, wait_s: float, done: Collected) -> None:
    """Until every asked rank has written, and its file grows no more. Dumps that the watchdog wrote count, too."""
    deadline = time.monotonic() + wait_s
    sizes: dict[int, int] = {}
    while True:
        for path in folder.glob(f"{DUMP}*"):
            rank = _rank(path, DUMP, "")
            if rank is None or rank in done.dumped_ns:
                continue
            about = path.stat()
            old = rank not in asked
            if about.st_size and (old or about.st_mtime_ns >= began) and sizes.get(rank) == about.st_size:
                done.dumped_ns[rank] = about.st_mtime_ns
            sizes[rank] = about.st_size
        if all(rank in done.dumped_ns for rank in [*asked, *sizes]) or time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)


def _stacks(folder: Path, done: Collected) -> None:
    tool = shutil.which("py-spy")
    if tool is None:
        done.lacking.append("stacks of Python: py-spy is not installed (pip install py-spy)")
        return
    for rank, pid in done.pids.items():
        text, why = _output([tool, "dump", "--json", "--nonblocking", "--pid", str(pid)])
        if text is None:
            done.lacking.append(f"the stack of rank {rank}: {why}")
            continue
        whole.write(folder / f"{STACKS}{rank}.json", [text])
        done.stacks.append(rank)


def _tools(folder: Path, done: Collected) -> None:
    """`ncclras` where it is, and the Xid lines of dmesg."""
    host = os.uname().nodename
    if (tool := shutil.which("ncclras")) is not None:
        text, _ = _output([tool, "-v"])
        if text:
            whole.write(folder / f"ncclras_{host}.txt", [text])
            done.files.append(folder / f"ncclras_{host}.txt")
    if (tool := shutil.which("dmesg")) is not None:
        text, _ = _output([tool])
        lines = [line for line in (text or b"").splitlines() if b"NVRM: Xid" in line or b"Killed process" in line]
        if lines:
            whole.write(folder / f"dmesg_{host}.txt", [b"\n".join(lines) + b"\n"])
            done.files.append(folder / f"dmesg_{host}.txt")


def _output(argv: list[str]) -> tuple[bytes | None, str]:
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=_TOOL_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, type(error).__name__
    if ran.returncode:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, lines[-1] if lines else f"exit {ran.returncode}"
    return ran.stdout, ""


def _note(folder: Path, done: Collected) -> None:
    """What nodes noted before is kept: several write into one folder."""
    path = folder / MANIFEST
    before: Mapping[str, Mapping[str, int]] = {}
    if path.is_file():
        try:
            before = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            before = {}
    times = {**before.get("dumped_ns", {}), **{str(rank): when for rank, when in done.dumped_ns.items()}}
    pids = {**before.get("pids", {}), **{str(rank): pid for rank, pid in done.pids.items()}}
    whole.write(path, [json.dumps({"dumped_ns": times, "pids": pids}, indent=1, sort_keys=True).encode()])

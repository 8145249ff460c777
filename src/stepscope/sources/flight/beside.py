"""What lies beside dumps, each of it optional: stacks of py-spy, logs of the watchdog and of launchers, `ncclras`,
dmesg.

Lines are matched, never run; a file that is none of these says nothing. Texts that are kept are short.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from stepscope.model.flight import NONE, Fact, Frame, Stack
from stepscope.sources.flight.ras import facts_of as ras_facts

_MOST_BYTES = 1 << 26
_LONGEST_LINE = 4096
_MOST_FACTS = 4096
_KEPT = 240
_NAMED = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)
_SAID = re.compile(r"\[[Rr]ank ?(\d{1,7})\]|\[default(\d{1,7})\]:")
_TIMEOUT = re.compile(r"\[Rank (\d{1,7})\] Watchdog caught collective operation timeout: (WorkNCCL\([^)]*\)[^)]*\))")
_STUCK = re.compile(
    r"Rank (\d{1,7})\].{0,80}?work: (\d+), last enqueued (?:NCCL )?work: (-?\d+), "
    r"last completed (?:NCCL )?work: (-?\d+)"
)
_OOM = re.compile(
    r"(OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|oom_kill|Out of memory: Killed process)"
)
_KILLED = re.compile(r"(?:Killed process|pid=|received by PID|pid:) ?(\d{1,9})")
_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d{1,4})(?:, pid='?(\d{1,9}))?")
_TASKS = re.compile(
    r"srun: error: .{0,200}?tasks? ([\d,\-]+): "
    r"(Killed|Exited with exit code (\d+)|Segmentation fault|Aborted|Out Of Memory)"
)
_EXIT = re.compile(r"failed \(exitcode: (-?\d+)\).{0,80}?(?:local_)?rank: (\d{1,7})")
_TORCHRUN_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,7})")
_TORCHRUN_EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)")
_DEAD = re.compile(
    r"(unhandled system error|ncclRemoteError|remote process exited|Connection closed by remote peer"
    r"|NET/IB.{0,200}(?:error|timeout))",
    re.I,
)
#: Exit codes by which the kernel ends a process that has too much.
_KILL = (-9, 137)


class _Thread(msgspec.Struct):
    """A thread as `py-spy dump --json` writes it."""

    frames: list[dict[str, Any]]
    thread_name: str | None = None
    pid: int = NONE


def read(files: list[Path], world: int) -> tuple[list[Stack], list[Fact]]:
    """What the files say: where threads stood, and facts from logs."""
    threads: list[Stack] = []
    facts: list[Fact] = []
    texts: list[tuple[Path, str]] = []
    pids: dict[int, int] = {}
    for path in files:
        data = _bytes(path)
        if data is None:
            continue
        if data.lstrip()[:1] == b"[" and (stacks := _threads(path, data, pids)) is not None:
            threads += stacks
        else:
            texts.append((path, data.decode("utf-8", "replace")))
    for path, text in texts:
        facts += ras_facts(str(path), text, world) if "NCCL version" in text and "Communicators" in text else []
        facts += _facts(path, text, pids, world)
    return threads, sorted(set(facts), key=lambda f: (f.path, f.kind, f.ranks, f.text))[:_MOST_FACTS]


def _bytes(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return None
    return None if b"\0" in data[:4096] else data


def _threads(path: Path, data: bytes, pids: dict[int, int]) -> list[Stack] | None:
    named = _NAMED.findall(path.name)
    try:
        listed = msgspec.json.decode(data, type=list[_Thread])
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not named:
        return []
    rank = int(named[-1])
    pids |= {thread.pid: rank for thread in listed if thread.pid != NONE}
    return [Stack(rank, thread.thread_name or "", tuple(map(_frame, thread.frames))) for thread in listed]


def _frame(frame: dict[str, Any]) -> Frame:
    line = frame.get("line")
    return Frame(str(frame.get("name", "")), str(frame.get("filename", "")), line if isinstance(line, int) else NONE)


def _facts(path: Path, text: str, pids: dict[int, int], world: int) -> list[Fact]:
    """Line by line; `rank :` and `exitcode :` of torchrun's summary stand on lines of their own."""
    named = _NAMED.findall(path.name)
    own = (int(named[-1]),) if named else ()
    facts: list[Fact] = []
    of_rank: tuple[int, ...] = ()
    for line in text.splitlines():
        line = line[:_LONGEST_LINE]
        ranks = _ranks(line) or own

        def add(kind: str, ranks: tuple[int, ...], number: int = NONE, line: str = line) -> None:
            inside = tuple(r for r in ranks if r < world)
            facts.append(Fact(kind, inside, " ".join(line.split())[:_KEPT], str(path), number))

        if match := _TIMEOUT.search(line):
            add("timeout", (int(match[1]),))
        elif match := _STUCK.search(line):
            add("timeout", ranks or (int(match[1]),), int(match[2]))
        elif match := _TASKS.search(line):
            kind = "oom" if match[2] == "Out Of Memory" else "exit"
            add(kind, _listed(match[1]), int(match[3]) if match[3] else _KILL[0])
        elif match := _XID.search(line):
            pid = int(match[3]) if match[3] else NONE
            add("xid", (pids[pid],) if pid in pids else own, int(match[2]))
        elif _OOM.search(line):
            killed = _KILLED.search(line)
            pid = int(killed[1]) if killed else NONE
            add("oom", (pids[pid],) if pid in pids else ranks)
        elif match := _EXIT.search(line):
            add("exit", (int(match[2]),), int(match[1]))
        elif match := _TORCHRUN_RANK.search(line):
            of_rank = (int(match[1]),)
        elif (match := _TORCHRUN_EXIT.search(line)) and of_rank:
            add("exit", of_rank, int(match[1]))
            of_rank = ()
        elif _DEAD.search(line):
            add("dead-peer", ranks)
        if len(facts) >= _MOST_FACTS:
            break
    return facts


def _ranks(line: str) -> tuple[int, ...]:
    match = _SAID.search(line)
    return (int(match[1] or match[2]),) if match else ()


def _listed(text: str) -> tuple[int, ...]:
    """`3,8-15` as numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            numbers += range(int(first), min(int(last or first), int(first) + (1 << 16)) + 1)
    return tuple(numbers)

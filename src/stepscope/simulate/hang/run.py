"""Simulating a hang from Python: a job and a class in; the files that its ranks would leave, and the truth, out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from stepscope.errors import BadInput
from stepscope.files import whole
from stepscope.simulate.hang.faults import HangFault, placed
from stepscope.simulate.hang.job import HangJob, Program, program
from stepscope.simulate.hang.pickled import pickled
from stepscope.simulate.hang.play import Played, play
from stepscope.simulate.hang.recorded import EPOCH_NS, dump_of

TRUTH = "truth.json"
_TRIES = 200
_SECOND = 1_000_000_000


class Hang:
    """A job that was played: its dumps can be written in either format."""

    def __init__(self, made: Program, played: Played, fault: HangFault, random: Random) -> None:
        self.made, self.played, self.fault = made, played, fault
        job = made.job
        self.culprits = _culprits(made, played, fault)
        last = played.last_ns
        if fault.name in ("slow", "healthy"):
            moment = round(last * random.uniform(0.7, 0.98))
            self.dumped_ns = [moment + random.randrange(20_000_000) for _ in range(job.world)]
        else:
            waited = random.choice((120, 600, 600, 1800)) * _SECOND
            self.dumped_ns = [last + waited + random.randrange(4 * _SECOND) for _ in range(job.world)]
        gone = set(self.culprits) if fault.name == "crash" else set()
        if fault.name == "oom" and random.random() < 0.5:
            gone = set(self.culprits)
        if job.culprit_lost:
            gone |= set(self.culprits[:1])
        innocent = [rank for rank in range(job.world) if rank not in self.culprits]
        gone |= set(random.sample(innocent, min(job.missing, max(0, len(innocent) - 2))))
        self.missing = sorted(gone)
        self.logs = _logs(fault, random)

    def truth(self) -> dict[str, Any]:
        """What was planted: the class, the ranks, the call."""
        call = self.made.calls[self.fault.rank][min(self.fault.call, len(self.made.calls[self.fault.rank]) - 1)]
        group = self.made.groups[call.group]
        return {
            "class": self.fault.verdict,
            "fault": self.fault.name,
            "ranks": self.culprits,
            "group": list(group.members),
            "call": self.fault.call,
            "missing": self.missing,
            "job": asdict(self.made.job),
        }

    def dumps(self, backend: str = "") -> dict[int, dict[str, Any]]:
        """By rank, what its recorder held."""
        there = [r for r in range(self.made.job.world) if r not in self.missing]
        return {r: dump_of(self.made, self.played, r, self.dumped_ns[r], backend) for r in there}

    def write(self, folder: Path, formats: tuple[str, ...] = ("pickle",)) -> list[Path]:
        """Dumps, logs and the truth."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        named = [(f"nccl_trace_rank_{rank}", rank, dump) for rank, dump in self.dumps().items()]
        for backend in sorted({group.backend for group in self.made.groups} - {""}) if self.made.job.recorders else ():
            named += [(f"{backend}_trace_rank_{rank}", rank, dump) for rank, dump in self.dumps(backend).items()]
        for name, rank, dump in named:
            for format in formats:
                data = pickled(dump) if format == "pickle" else as_json(dump)
                path = folder / (name + (".json" if format == "json" else ""))
                whole.write(path, [data])
                when = EPOCH_NS + self.dumped_ns[rank]
                os.utime(path, ns=(when, when))
                written.append(path)
        for name, text in self.logs.items():
            whole.write(folder / name, [text.encode()])
            written.append(folder / name)
        whole.write(folder / TRUTH, [json.dumps(self.truth(), indent=1).encode()])
        return [*written, folder / TRUTH]


def as_json(dump: dict[str, Any]) -> bytes:
    """As `_dump_fr_trace_json` writes it: no stacks, 0 for times that are not known, numbers of status as texts."""
    entries = []
    for entry in dump["entries"]:
        plain = {key: value for key, value in entry.items() if key != "frames"}
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            plain[key] = plain[key] or 0
        entries.append(plain)
    status = {g: {k: str(v) for k, v in s.items()} for g, s in dump.get("pg_status", {}).items()}
    return msgspec.json.encode({**dump, "entries": entries, "pg_status": status})


def simulate_hang(job: HangJob, fault: HangFault, write: Callable[[HangJob], Program] = program) -> Hang:
    """Play the job with the fault; where the draw does not make it hang, draw again. `write` writes its program."""
    random = Random(f"{job.seed} fault")
    for _ in range(_TRIES):
        made = write(job)
        planted = placed(made, fault, random)
        if planted is None:
            continue
        if planted.name == "slow":
            _slow(made, planted, random)
        played = play(made, planted)
        if played.hung or planted.name in ("slow", "healthy"):
            return Hang(made, played, planted, random)
    raise BadInput(f"--hang {fault.name}: this job does not hang of it", "give it more ranks, or another class")


def _slow(made: Program, fault: HangFault, random: Random) -> None:
    factor = random.choice((8, 20, 60))
    calls = made.calls[fault.rank]
    half = [n for n, call in enumerate(calls) if call.step >= made.job.steps // 2]
    for n in half:
        calls[n] = replace(calls[n], compute_ns=calls[n].compute_ns * factor)


def _culprits(made: Program, played: Played, fault: HangFault) -> list[int]:
    """The planted rank; of a dead link both its ends; none where nothing hangs."""
    if fault.name in ("healthy",):
        return []
    if fault.name != "link":
        return [fault.rank]
    call = made.calls[fault.rank][fault.call]
    members = made.groups[call.group].members
    if call.pairs:
        return sorted(members[place] for place in call.pairs[0])
    after = members[(members.index(fault.rank) + 1) % len(members)]
    return sorted((fault.rank, after))


def _logs(fault: HangFault, random: Random) -> dict[str, str]:
    if fault.name == "oom":
        return {
            "train.log": f"[rank{fault.rank}]: torch.OutOfMemoryError: CUDA out of memory. "
            "Tried to allocate 2.00 GiB.\n"
        }
    if fault.name == "crash" and random.random() < 0.5:
        return {"train.log": f"srun: error: node1: task {fault.rank}: Segmentation fault\n"}
    return {}

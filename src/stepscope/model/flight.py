"""Dumps of PyTorch's flight recorder as columns: what each rank of a job had called, and how far each call came.

A row of `Calls` is one call of one rank. Groups, signatures and stacks are numbered over all ranks, so that calls of
different ranks compare as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

#: How far a call came: enqueued by the host, running on the GPU, done. Without timing no call is ever seen to run.
SCHEDULED, STARTED, COMPLETED = 0, 1, 2
STATES = ("scheduled", "started", "completed")
#: Of times that were not recorded, and of sequence numbers that a call does not have.
NONE = -1
#: Calls between two ranks, and the call that closes a batch of calls.
SEND, RECV, COALESCED = "send", "recv", "coalesced"
#: What the group of all ranks is for.
DEFAULT_GROUP = "default_pg"
#: Names of a process's first thread, as py-spy has them.
MAIN = ("MainThread", "")
#: A call under way that the ring no longer holds: only the status of its group says that it is there.
LOST = "a call that the ring no longer holds"


#: Frames of the library, not of the job.
_LIBRARY = ("torch/", "/site-packages/", "<string>", "<frozen", "/multiprocessing/", "/threading.py")


class Frame(msgspec.Struct, frozen=True):
    """A line of Python on the stack of a call."""

    name: str
    file: str
    line: int


def own_frames(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Those of the job's own lines; of a stack that has none, all."""
    listed = tuple(frames)
    return tuple(f for f in listed if not any(part in f.file for part in _LIBRARY)) or listed


class Signature(msgspec.Struct, frozen=True):
    """What a call does, without its group: `kind` is `all_reduce`; of a send or recv, `source` and `target` are places
    in the group. Counts are elements."""

    kind: str
    elements_in: int = 0
    elements_out: int = 0
    types: str = ""
    source: int = NONE
    target: int = NONE

    @property
    def text(self) -> str:
        """As people write it."""
        if self.source != NONE:
            return f"{self.kind} {self.source}->{self.target} of {self.elements_in or self.elements_out:,} {self.types}"
        if not self.elements_in and not self.elements_out:
            return self.kind
        return f"{self.kind} of {self.elements_in or self.elements_out:,} {self.types}".rstrip()


class Group(msgspec.Struct, frozen=True):
    """A process group. `members` are ranks of the job; `declared` where the dumps list them, else those that were
    seen."""

    name: str
    purpose: str
    members: tuple[int, ...]
    declared: bool = True

    @property
    def text(self) -> str:
        return f"{self.purpose} (group {self.name})" if self.purpose not in ("", "undefined") else f"group {self.name}"


class Calls(msgspec.Struct):
    """Every call of every dump, by rank and, within a rank, in the order in which it was made."""

    rank: I64
    record: I64
    group: I64
    signature: I64
    stack: I64
    #: sequence number in its group; of calls between two ranks, that of such calls
    seq: I64
    p2p: npt.NDArray[np.bool_]
    #: run by threads of the host, as Gloo's: without events, and under way once it was made
    hosted: npt.NDArray[np.bool_]
    state: I64
    created_ns: I64
    started_ns: I64
    completed_ns: I64
    timeout_ms: I64

    def __len__(self) -> int:
        return len(self.rank)


class Dump(msgspec.Struct):
    """What is known of one rank's dump."""

    rank: int
    path: str
    version: str
    #: when it was written, by what is in it or beside it; `NONE` where nothing says
    dumped_ns: int
    #: what says so: `recorded`, `manifest`, or `file` for its last change
    dated: str
    #: whether the ring had overflowed: older calls are gone
    overflowed: bool
    #: by group: last enqueued, started, completed sequence number
    status: dict[int, tuple[int, int, int]] = {}


class Stack(msgspec.Struct, frozen=True):
    """Where a Python thread stood, innermost frame first: of py-spy."""

    rank: int
    thread: str
    frames: tuple[Frame, ...]


class Fact(msgspec.Struct, frozen=True):
    """Something that a log says of a rank: `kind` is `exit`, `oom`, `xid`, `timeout`, `dead-peer` or `error`."""

    kind: str
    #: ranks of the job it is about; none where the line does not say
    ranks: tuple[int, ...]
    text: str
    path: str
    #: the number of it: exit code, Xid
    number: int = NONE


class Flight(msgspec.Struct, dict=True):
    """All dumps of one job, and what lay beside them."""

    dumps: list[Dump]
    calls: Calls
    groups: list[Group]
    signatures: list[Signature]
    stacks: list[tuple[Frame, ...]]
    #: ranks of the job, by its largest group
    world: int
    threads: list[Stack] = []
    facts: list[Fact] = []
    #: files that could not be read: path and why
    refused: list[tuple[str, str]] = []

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks whose dump is there."""
        return [dump.rank for dump in self.dumps]

    @cached_property
    def missing(self) -> list[int]:
        """Ranks of the job whose dump is not there."""
        there = set(self.ranks)
        return [rank for rank in range(self.world) if rank not in there]

    @cached_property
    def overflowed(self) -> frozenset[int]:
        """Ranks whose ring no longer holds their first calls."""
        return frozenset(dump.rank for dump in self.dumps if dump.overflowed)

    @cached_property
    def timed(self) -> bool:
        """Whether any call on a GPU was seen to start: without timing a dump cannot tell running from enqueued."""
        calls = self.calls
        begun = (calls.started_ns != NONE) | (calls.state == STARTED)
        return bool(begun[~calls.hosted].any()) or bool(calls.hosted.all())


def empty_calls() -> Calls:
    """No calls."""
    none: Any = np.zeros(0, np.int64)
    neither: Any = np.zeros(0, np.bool_)
    return Calls(none, none, none, none, none, none, neither, neither, none, none, none, none, none)

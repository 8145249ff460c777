"""Items that go through two stages, one after the other: ranges for a profile, and a log of timestamps without one.

    from stepscope.annotate import items

    items.log("items", queue_in=2, queue_out=1)   # a file per rank; under `capture run`, in the capture's folder

    with items.stage0(k):                         # first process: tA0 … tA1
        hidden = encode(batch)
    items.sent(k)                                 # tSend
    ...
    with items.decode(k):                         # what came back: tRecv … tDecode
        text = decode(hidden)
    items.emitted(k, tokens=len(text))            # tEmit

    with items.stage1(k):                         # leader of the mesh: tB0 … tB1
        hidden = layers(hidden)

`stepscope pipeline items` reads the log: period, both stages, decoding, idle time of the mesh, OverlapScore. Times are
the host's: a block that only launches GPU work ends before that is done, so wait for it there, or take a profile, where
`pipeline` measures the GPU's work. Without a log or a profiler every call returns one shared object that does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from stepscope import annotate
from stepscope.annotate.profilers import Emitter

#: The folder of the logs within a capture.
FOLDER = "items"


class _Log:
    """One process's file; lines are written whole, from any thread."""

    def __init__(self, folder: Path, depths: dict[str, int]) -> None:
        rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / f"rank{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self.write({"unit": "ns", "rank": rank, **depths})

    def write(self, record: dict[str, int | str]) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the job
            os.write(self._file, json.dumps(record).encode() + b"\n")


class _Timed:
    """A part of an item's way: a range, and two times."""

    __slots__ = ("_began", "_emit", "_fields", "_k", "_log", "_text")

    def __init__(self, log: _Log | None, emit: Emitter | None, k: int, text: str, fields: tuple[str, str]) -> None:
        self._log, self._emit, self._k, self._text, self._fields = log, emit, k, text, fields

    def __enter__(self) -> None:
        if self._emit is not None:
            self._emit.push(self._text)
        self._began = time.perf_counter_ns()

    def __exit__(self, *raised: object) -> None:
        ended = time.perf_counter_ns()
        if self._emit is not None:
            self._emit.pop()
        if self._log is not None and raised[0] is None:
            first, last = self._fields
            self._log.write({"k": self._k, first: self._began, last: ended})


_log: _Log | None = None
_ready = False
_depths: dict[str, int] = {}
_told: Emitter | None = None  # who was told of the depths


def log(
    folder: str | os.PathLike[str] | None = None, *, queue_in: int | None = None, queue_out: int | None = None
) -> None:
    """Log to a file per rank in `folder`; under `capture run`, in the capture's, and without this call too.

    The depths are those of the queues into the second stage and out of it.
    """
    global _log, _ready
    _ready = True
    annotate._bind()
    depths = {"queue_depth_in": queue_in, "queue_depth_out": queue_out}
    _depths.update({name: depth for name, depth in depths.items() if depth is not None})
    out = os.environ.get("STEPSCOPE_CAPTURE_OUT")
    where = Path(out) / FOLDER if out else folder
    _log = _Log(Path(where), _depths) if where is not None else None


def stage0(k: int) -> Any:
    """What the first process does of item k before it sends it on."""
    return _part(k, "pp:stage0:A", ("tA0", "tA1"))


def decode(k: int) -> Any:
    """What the first process does with item k when it has come back."""
    return _part(k, "pp:stage0:decode", ("tRecv", "tDecode"))


def stage1(k: int) -> Any:
    """What the mesh does of item k; its leader's counts."""
    return _part(k, "pp:stage1:B", ("tB0", "tB1"))


def sent(k: int) -> None:
    """Item k is on its way to the second stage."""
    _moment(k, "pp:send", "tSend", None)


def emitted(k: int, tokens: int | None = None) -> None:
    """Item k is done, with so many tokens."""
    _moment(k, "pp:emit", "tEmit", tokens)


def _part(k: int, text: str, fields: tuple[str, str]) -> Any:
    if annotate._compiling():
        return nullcontext()
    emit = _emitter()
    if _log is None and emit is None:
        return annotate._NOTHING
    return _Timed(_log, emit, k, f"{text} k={k}", fields)


def _moment(k: int, text: str, field: str, tokens: int | None) -> None:
    if annotate._compiling():
        return
    emit = _emitter()
    if emit is not None:
        _mark(emit, f"{text} k={k}" if tokens is None else f"{text} k={k} tokens={tokens}")
    if _log is not None:
        many = {} if tokens is None else {"tokens": tokens}
        _log.write({"k": k, field: time.perf_counter_ns(), **many})


def _emitter() -> Emitter | None:
    """Where ranges go now. What is captured begins with the depths of the queues."""
    global _told
    if not _ready:
        log()
    emit = annotate.emitter()
    if emit is not None and emit is not _told:
        _told = emit
        for name, depth in _depths.items():
            _mark(emit, f"pp:{name}={depth}")
    return emit


def _mark(emit: Emitter, text: str) -> None:
    emit.push(text)
    emit.pop()

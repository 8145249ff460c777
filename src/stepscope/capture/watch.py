"""The steps of a run, from the lines that `stepscope.annotate` writes: for progress, and for what went wrong."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope.model.labels import parse_setup

_TELLING = re.compile(r"error|fail|exception|fatal|cannot|no space|denied|died|exit|--die-at", re.IGNORECASE)
#: Lines of launchers that only say that something failed elsewhere.
_NOISE = re.compile(
    r"ChildFailedError|torch\.distributed\.elastic|Traceback|^\s*File |={5,}|-{5,}|traceback : |error_file|"
    r"^\s*(time|host|rank|exitcode)\s*:|Root Cause|FAILED$|\[W\d+|^Failures:|NO_OTHER_FAILURES|^\s*\^+|^[EWIF]\d{4} |"
    r"target application|^Generat|^Capture range|^\[\d+/\d+\]|^USDT:|\.nsys-rep$|^The application terminated",
)


@dataclass
class Steps:
    """Of all ranks together. `done` is what the slowest rank has finished."""

    ranks: int = 0
    done: int = 0
    #: ranks that have recorded a stretch, and those that record no more
    stopped: int = 0
    over: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    #: by rank: [ns, profiled] of every step in order
    times: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    #: by rank: when each of them began, by a clock of the rank
    began: dict[str, list[int]] = field(default_factory=dict)
    #: by rank: [steps, ns, profiled] between two synchronizes of the device, where steps are not synchronized each
    spans: dict[str, list[tuple[int, int, bool]]] = field(default_factory=dict)
    #: why a rank did not start its profiler
    refused: str | None = None
    #: what of stepscope's own failed in the program, which went on without it
    failed: str | None = None
    #: by rank: what the rank itself says of its environment
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: what the program asked of torch.compile: backend, mode, dynamic, fullgraph
    compiled_with: list[dict[str, Any]] = field(default_factory=list)
    #: by rank: what hooks found and cost, where they found the steps
    hooks: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, tuple[int, int]]:
        setup = parse_setup(self.about.get("label") or "")
        return setup.axes if setup else {}

    @property
    def shape(self) -> dict[str, str]:
        setup = parse_setup(self.about.get("label") or "")
        return setup.extra if setup else {}


class Watcher:
    """Reads what the ranks of a run write: of each file only what is new, as runs may be long."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._stopped: set[str] = set()
        self._over: set[str] = set()
        self.steps = Steps()

    def read(self) -> Steps:
        """What the ranks have written so far; lines that are being written are left for later."""
        steps = self.steps
        files = sorted((self._folder / "steps").glob("rank*.jsonl"), key=lambda f: int(_digits(f) or 0))
        for file in files:
            rank = _digits(file)
            steps.times.setdefault(rank, [])
            steps.began.setdefault(rank, [])
            for line in self._new_lines(file):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._take(rank, json.loads(line))
        steps.ranks, steps.stopped, steps.over = len(files), len(self._stopped), len(self._over)
        steps.done = min((len(of_rank) for of_rank in steps.times.values()), default=0)
        return steps

    def _new_lines(self, file: Path) -> list[str]:
        with file.open("rb") as lines:
            lines.seek(self._read.get(file, 0))
            new = lines.read()
        whole = new.rfind(b"\n") + 1
        self._read[file] = self._read.get(file, 0) + whole
        return new[:whole].decode("utf-8", "replace").splitlines()

    def _take(self, rank: str, record: dict[str, Any]) -> None:
        """One line of a rank."""
        steps = self.steps
        if "about" in record:
            steps.about = steps.about or record["about"]
            steps.environments[rank] = record["about"]
        elif "label" in record:
            steps.about["label"] = steps.about.get("label") or record["label"]
        elif "refused" in record:
            steps.refused = record["refused"]
        elif "failed" in record:
            steps.failed = steps.failed or f"{record['failed']} (rank {rank})"
        elif "gpus" in record:
            steps.environments.setdefault(rank, {})["gpus"] = record["gpus"]
        elif "span" in record:
            span = record["span"]
            steps.spans.setdefault(rank, []).append((span["steps"], span["ns"], span["profiled"]))
        elif "hooks" in record:
            steps.hooks[rank] = record["hooks"]
        elif "compiled_with" in record:
            steps.compiled_with = steps.compiled_with or record["compiled_with"]
        elif record.get("stopped"):
            self._stopped.add(rank)
            if not record.get("more"):
                self._over.add(rank)
        else:
            steps.times[rank].append((int(record["ns"]), bool(record["profiled"])))
            steps.began[rank].append(int(record.get("began_ns", 0)))


def read(folder: Path) -> Steps:
    """All that the ranks have written."""
    return Watcher(folder).read()


def _digits(file: Path) -> str:
    return re.sub(r"\D", "", file.stem)


def reason(log: Path) -> str:
    """The line of a log that says most about a failure."""
    try:
        lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return "no log"
    lines = [line for line in lines[-400:] if not _NOISE.search(line)]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or ["it said nothing"])[-1][:200]


def no_space(log: Path) -> bool:
    """Whether the disk was full."""
    with contextlib.suppress(OSError):
        return "No space left on device" in log.read_text("utf-8", "replace")
    return False

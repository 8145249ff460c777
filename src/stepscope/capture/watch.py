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
    stopped: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    #: by rank: [ns, profiled] of every step in order
    times: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
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


def read(folder: Path) -> Steps:
    """What the ranks have written so far; lines that are being written are left for later."""
    found = Steps()
    done = []
    for file in sorted((folder / "steps").glob("rank*.jsonl"), key=lambda f: int(re.sub(r"\D", "", f.stem) or 0)):
        found.ranks += 1
        rank = re.sub(r"\D", "", file.stem)
        mine: list[tuple[int, bool]] = []
        for line in file.read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                if "about" in record:
                    found.about = found.about or record["about"]
                    found.environments[rank] = record["about"]
                elif "label" in record:
                    found.about["label"] = found.about.get("label") or record["label"]
                elif "refused" in record:
                    found.refused = record["refused"]
                elif "failed" in record:
                    found.failed = found.failed or f"{record['failed']} (rank {rank})"
                elif "gpus" in record:
                    found.environments.setdefault(rank, {})["gpus"] = record["gpus"]
                elif "span" in record:
                    span = record["span"]
                    found.spans.setdefault(rank, []).append((span["steps"], span["ns"], span["profiled"]))
                elif "hooks" in record:
                    found.hooks[rank] = record["hooks"]
                elif "compiled_with" in record:
                    found.compiled_with = found.compiled_with or record["compiled_with"]
                elif record.get("stopped"):
                    found.stopped += 1
                else:
                    mine.append((int(record["ns"]), bool(record["profiled"])))
        found.times[rank] = mine
        done.append(len(mine))
    found.done = min(done, default=0)
    return found


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
